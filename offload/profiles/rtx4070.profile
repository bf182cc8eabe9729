# NVIDIA GeForce RTX 4070, 12 GB (sm_89), on PCIe 4.0 x16. Not measured here: rates are stated figures times what
# kernels are known to reach of them.
name = rtx4070
unified = no
has_fp8 = yes
sm = 89

# PCIe 4.0 x16 moves 31.5e9 in theory; pinned copies reach about 25e9 of it.
link_bytes_per_s = 25e9
link_latency_s = 10e-6
# While a page is copied computing takes longer: the copy is 25e9 of the memory's 428e9, 0.058. Three quarters of
# that share, as on the H200 (h200.profile).
link_slows_compute = 0.04

# A good PCIe 4.0 x4 NVMe drive: 7e9 stated, 0.9 of it sequential with O_DIRECT.
disk_bytes_per_s = 6.3e9
disk_latency_s = 100e-6
disk_queue_depth = 32

# Stated, dense: bf16 58.3e12, int8 233e12, fp8 116.6e12 (with f32 accumulation). bf16: 0.95, as in
# rtx4090.profile. The others: 0.80, 0.87, and attention 0.87 of the bf16 peak, for our kernels of mma.sync ("Cards we
# cannot measure" in kernels/PERF.md tells why); CUTLASS reaches more than 200e12 in int8, measured by others.
bf16_flops = 55e12
int8_flops = 186e12
fp8_flops = 101e12
attention_flops = 51e12

# 504e9 stated, 0.85 of it in kernels that only move.
memory_bytes_per_s = 428e9
launch_s = 3e-6

# 12282 MiB as the driver reports it; context and libraries take about half a GiB.
device_bytes = 12878610432
context_bytes = 536870912
host_bytes = 34359738368
