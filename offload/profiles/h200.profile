# NVIDIA H200 (sm_90), on PCIe 5.0 x16 with a virtual disk. Link, disk and products are measured.
name = h200
unified = no
has_fp8 = yes
sm = 90

# Pinned to device, from 16 MiB up: 55.2e9. 53.3e9 at 4 MiB and 47.6e9 at 1 MiB give the latency.
link_bytes_per_s = 55.2e9
link_latency_s = 3e-6
# While pages are copied computing takes longer: `bench machine`, bf16 1.65 %, int8 2.19 %, fp8 1.50 %; in another run 5.2, 3.2
# and 1.8 %, where whole steps took 2 % (bf16), 1.4 % (int8) and 1.3 % (fp8) longer at the budgets where copies are hidden.
link_slows_compute = 0.018

# io_uring with O_DIRECT and registered buffers: 1.8e9 to 2.2e9.
disk_bytes_per_s = 2.0e9
disk_latency_s = 200e-6
disk_queue_depth = 32

# Of FLUX.1-dev's steps at 1024x1024, at the card's power limit: with these and what follows a plan gives the times of README's
# table. `bench machine`, which puts less on products and more on memory (3180e9), has 678e12, 1441e12, 1289e12 and 653e12.
# fp8 is since its MLPs make codes by a bound; `bench machine` was before.
bf16_flops = 668e12
int8_flops = 1378e12
fp8_flops = 1205e12
attention_flops = 653e12

# 4.8e12 stated, 0.85 of it in kernels that only move; those of a step reach 3180e9 to 3240e9.
memory_bytes_per_s = 4080e9
launch_s = 3.7e-6

# 143771 MiB as the driver reports it; context and libraries take about 0.6 GiB.
device_bytes = 150754820096
context_bytes = 644245094
host_bytes = 137438953472
