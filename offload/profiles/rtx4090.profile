# NVIDIA GeForce RTX 4090, 24 GB (sm_89), on PCIe 4.0 x16. Not measured here: rates are stated figures times what
# kernels are known to reach of them.
name = rtx4090
unified = no
has_fp8 = yes
sm = 89

# PCIe 4.0 x16 moves 31.5e9 in theory; pinned copies reach about 25e9 of it.
link_bytes_per_s = 25e9
link_latency_s = 10e-6
# While a page is copied computing takes longer: the copy is 25e9 of the memory's 857e9, 0.029. Three quarters of
# that share, as on the H200 (h200.profile).
link_slows_compute = 0.02

# A good PCIe 4.0 x4 NVMe drive: 7e9 stated, 0.9 of it sequential with O_DIRECT.
disk_bytes_per_s = 6.3e9
disk_latency_s = 100e-6
disk_queue_depth = 32

# Stated, dense: bf16 165e12, int8 660e12, fp8 330e12 (with f32 accumulation).
# bf16: measured by others, 150e12 to 165e12 in torch.matmul: 0.95.
bf16_flops = 157e12
# int8: 0.75, fp8: 0.87, for our kernel of mma.sync ("Cards we cannot measure" in kernels/PERF.md tells why); a published
# 3.51 steps a second of FLUX.1-dev in fp8 means at least 261e12.
int8_flops = 495e12
fp8_flops = 287e12
# 0.87, for the same reasons. (FlashAttention-2, head size 128, no mask: 161e12 to 164e12, measured by others.)
attention_flops = 143e12

# 1008e9 stated, 0.85 of it in kernels that only move.
memory_bytes_per_s = 857e9
launch_s = 3e-6

# 24564 MiB as the driver reports it; context and libraries take about half a GiB.
device_bytes = 25757220864
context_bytes = 536870912
host_bytes = 34359738368
