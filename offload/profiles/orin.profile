# NVIDIA Jetson AGX Orin, 64 GB (sm_87, no fp8). Host and device memory are one: a page is read from the NVMe drive
# straight to its place, and no link is passed. Not measured here.
name = orin
unified = yes
has_fp8 = no
sm = 87

# Of no use on unified memory; a copy inside it, half of the memory's rate.
link_bytes_per_s = 80e9
link_latency_s = 5e-6
# No link is passed: nothing is copied beside computing. (What the drive writes is 0.02 of the memory's rate.)
link_slows_compute = 0

# A PCIe 4.0 x4 NVMe drive on the module's slot: 0.7 of the 5e9 that such drives state, for the weaker host.
disk_bytes_per_s = 3.5e9
disk_latency_s = 120e-6
disk_queue_depth = 32

# Stated for the GPU: int8 170e12 sparse, so 85e12 dense, and half of that in 16 bits. 0.6 of both and 0.5 in
# attention: its tensor cores take half the clocks of a GeForce's, so that what is not hidden weighs double ("Cards we cannot
# measure" in kernels/PERF.md).
bf16_flops = 25e12
int8_flops = 51e12
fp8_flops = 0
attention_flops = 21e12

# 204.8e9 stated, 0.8 of it.
memory_bytes_per_s = 164e9
launch_s = 8e-6

# What Linux has of the 64 GB is about 61 GiB, shared with the programs.
device_bytes = 65498251264
context_bytes = 536870912
host_bytes = 65498251264
