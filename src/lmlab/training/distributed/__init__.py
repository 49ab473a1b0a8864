"""Training in several processes on PyTorch's own engine: torchrun, DDP, FSDP2, gloo and NCCL."""
