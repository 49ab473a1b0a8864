"""Estimates of training cost before training: parameters, FLOPs, memory, time, energy, CO2e and money."""
