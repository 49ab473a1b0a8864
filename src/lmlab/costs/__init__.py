"""What a model costs, known before it is trained: parameters, FLOPs, memory, time, energy, CO2e, money."""
