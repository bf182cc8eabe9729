# A laptop's processor with two cores and the CPU backend: the "device" is an arena in the same RAM, the "link" is
# memcpy. Round figures, meant for comparing plans rather than for clocks.
name = cpu
unified = no
has_fp8 = no

# memcpy of two cores.
link_bytes_per_s = 8e9
link_latency_s = 1e-6
# Copying is a third thread's work on two cores.
link_slows_compute = 0.5

# A plain NVMe drive.
disk_bytes_per_s = 2e9
disk_latency_s = 100e-6
disk_queue_depth = 8

# Products in f32 through a BLAS library, about 100e9 of some 150e9 that two cores with 256-bit vectors could do;
# narrower weights are widened first, so they are no faster. Attention in plain loops: half of it.
bf16_flops = 100e9
int8_flops = 100e9
fp8_flops = 0
attention_flops = 50e9

# Two channels of DDR4: 0.6 of the stated 25e9.
memory_bytes_per_s = 15e9
launch_s = 1e-6

# 16 GiB of RAM, half of it for the arena.
device_bytes = 8589934592
context_bytes = 0
host_bytes = 17179869184
