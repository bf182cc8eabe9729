# NVIDIA H200 (sm_90), on PCIe 5.0 x16 with a virtual disk. Link, disk and products are measured.
name = h200
unified = no
has_fp8 = yes
sm = 90

# Pinned to device, from 16 MiB up: 55.2e9. 53.3e9 at 4 MiB and 47.6e9 at 1 MiB give the latency.
link_bytes_per_s = 55.2e9
link_latency_s = 3e-6
# While pages are copied computing takes longer. From steps: in bf16 121.4 ms instead of 119.2, of which 107 beside copies (0.02),
# in int8 76.2 instead of 75.9 and in fp8 88.3 instead of 88.1, of which 62 (0.005 and 0.003). One figure for the three.
link_slows_compute = 0.01

# io_uring with O_DIRECT and registered buffers: 1.8e9 to 2.2e9.
disk_bytes_per_s = 2.0e9
disk_latency_s = 200e-6
disk_queue_depth = 32

# `bench machine`: of FLUX blocks at 1024x1024, as whole passes take them, so that this profile gives their times.
bf16_flops = 694e12
int8_flops = 1379e12
fp8_flops = 1071e12
attention_flops = 679e12

# 4.8e12 stated, 0.85 of it in kernels that only move; those of a step reach 2992e9.
memory_bytes_per_s = 4080e9
launch_s = 3.6e-6

# 143771 MiB as the driver reports it; context and libraries take about 0.6 GiB.
device_bytes = 150754820096
context_bytes = 644245094
host_bytes = 137438953472
