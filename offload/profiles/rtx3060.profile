# NVIDIA GeForce RTX 3060, 12 GB (sm_86, no fp8), on PCIe 4.0 x16. Not measured here: rates are stated figures times
# what kernels are known to reach of them.
name = rtx3060
unified = no
has_fp8 = no
sm = 86

# PCIe 4.0 x16 moves 31.5e9 in theory; pinned copies reach about 25e9 of it. In a PCIe 3.0 slot it is half of that.
link_bytes_per_s = 25e9
link_latency_s = 10e-6
# While a page is copied computing takes longer: the copy is 25e9 of the memory's 306e9, 0.082. Three quarters of
# that share, as on the H200 (h200.profile).
link_slows_compute = 0.06

# A good PCIe 3.0 x4 NVMe drive: 3.5e9 stated, 0.9 of it sequential with O_DIRECT.
disk_bytes_per_s = 3.2e9
disk_latency_s = 100e-6
disk_queue_depth = 32

# Stated, dense: bf16 25.5e12 (with f32 accumulation), int8 102e12. bf16: 0.95, as in
# rtx4090.profile. int8: 0.80, for our kernel of mma.sync ("Cards we cannot measure" in kernels/PERF.md tells why).
bf16_flops = 24e12
int8_flops = 82e12
fp8_flops = 0
# 0.87, for the same reasons. (FlashAttention-2 reaches 71e12 on an RTX 3090, that card's peak, measured by others.)
attention_flops = 22e12

# 360e9 stated, 0.85 of it in kernels that only move.
memory_bytes_per_s = 306e9
launch_s = 4e-6

# 12288 MiB; context and libraries take about half a GiB.
device_bytes = 12884901888
context_bytes = 536870912
host_bytes = 34359738368
