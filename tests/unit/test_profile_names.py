"""Profiles by the names that drivers report."""

from __future__ import annotations

import pytest

from clhist._core.devices.profile import Report, matching, merge
from clhist._core.devices.profile_files import load_profiles

NVIDIA_NAMES = {
    "NVIDIA GeForce RTX 2080 Ti": ("nvidia-geforce-rtx-2080-ti", "nvidia-turing"),
    "GeForce RTX 2080 Ti": ("nvidia-geforce-rtx-2080-ti", "nvidia-turing"),
    "NVIDIA GeForce RTX 2080": ("nvidia-geforce-rtx-2080", "nvidia-turing"),
    "NVIDIA GeForce RTX 2080 SUPER": ("nvidia-turing",),
    "NVIDIA GeForce RTX 2080 with Max-Q Design": ("nvidia-turing",),
    "NVIDIA GeForce RTX 2070": ("nvidia-geforce-rtx-2070", "nvidia-turing"),
    "NVIDIA GeForce RTX 2050": ("nvidia-ampere",),
    "NVIDIA GeForce GTX 1650 with Max-Q Design": ("nvidia-turing",),
    "NVIDIA GeForce GTX 1660 Ti": ("nvidia-turing",),
    "NVIDIA TITAN RTX": ("nvidia-turing",),
    "Quadro RTX 6000": ("nvidia-turing",),
    "Tesla T4": ("nvidia-tesla-t4", "nvidia-turing"),
    "NVIDIA T1000 8GB": ("nvidia-turing",),
    "NVIDIA GeForce GTX 1080 Ti": ("nvidia-geforce-gtx-1080-ti", "nvidia-pascal"),
    "NVIDIA TITAN Xp": ("nvidia-pascal",),
    "NVIDIA GeForce MX150": ("nvidia-pascal",),
    "Quadro P2000": ("nvidia-pascal",),
    "Tesla P100-PCIE-16GB": ("nvidia-tesla-p100", "nvidia-pascal"),
    "Tesla P40": ("nvidia-pascal",),
    "Tesla V100-SXM2-16GB": ("nvidia-tesla-v100", "nvidia-volta"),
    "Tesla V100S-PCIE-32GB": ("nvidia-tesla-v100", "nvidia-volta"),
    "NVIDIA TITAN V": ("nvidia-volta",),
    "NVIDIA A100-SXM4-80GB": ("nvidia-a100", "nvidia-ampere-ga100"),
    "NVIDIA A100 80GB PCIe": ("nvidia-a100", "nvidia-ampere-ga100"),
    "A100-PCIE-40GB": ("nvidia-a100", "nvidia-ampere-ga100"),
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": ("nvidia-ampere-ga100",),
    "NVIDIA A30": ("nvidia-a30", "nvidia-ampere-ga100"),
    "NVIDIA A10": ("nvidia-a10", "nvidia-ampere"),
    "NVIDIA A10G": ("nvidia-ampere",),
    "NVIDIA A40": ("nvidia-rtx-a6000", "nvidia-ampere"),
    "NVIDIA RTX A6000": ("nvidia-rtx-a6000", "nvidia-ampere"),
    "NVIDIA RTX A2000 12GB": ("nvidia-ampere",),
    "NVIDIA GeForce RTX 3090": ("nvidia-geforce-rtx-3090", "nvidia-ampere"),
    "NVIDIA GeForce RTX 3090 Ti": ("nvidia-ampere",),
    "NVIDIA GeForce RTX 3080": ("nvidia-ampere",),
    "NVIDIA GeForce RTX 3070": ("nvidia-geforce-rtx-3070", "nvidia-ampere"),
    "NVIDIA GeForce RTX 3070 Laptop GPU": ("nvidia-ampere",),
    "NVIDIA GeForce RTX 3060 Ti": ("nvidia-geforce-rtx-3060-ti", "nvidia-ampere"),
    "NVIDIA GeForce RTX 3060 Laptop GPU": ("nvidia-ampere",),
    "NVIDIA GeForce RTX 4090": ("nvidia-geforce-rtx-4090", "nvidia-ada"),
    "NVIDIA GeForce RTX 4090 D": ("nvidia-ada",),
    "NVIDIA GeForce RTX 4080": ("nvidia-geforce-rtx-4080", "nvidia-ada"),
    "NVIDIA GeForce RTX 4070": ("nvidia-geforce-rtx-4070", "nvidia-ada"),
    "NVIDIA GeForce RTX 4060": ("nvidia-geforce-rtx-4060", "nvidia-ada"),
    "NVIDIA GeForce RTX 4060 Laptop GPU": ("nvidia-ada",),
    "NVIDIA RTX 6000 Ada Generation": ("nvidia-l40s", "nvidia-ada"),
    "NVIDIA RTX 4000 SFF Ada Generation": ("nvidia-ada",),
    "NVIDIA L4": ("nvidia-l4", "nvidia-ada"),
    "NVIDIA L40S": ("nvidia-l40s", "nvidia-ada"),
    "NVIDIA H100 80GB HBM3": ("nvidia-h100", "nvidia-hopper"),
    "NVIDIA H100 NVL": ("nvidia-h100", "nvidia-hopper"),
    "NVIDIA H100 PCIe": ("nvidia-h100-pcie", "nvidia-hopper"),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": ("nvidia-hopper",),
    "NVIDIA H200": ("nvidia-h200", "nvidia-hopper"),
    "NVIDIA H200 NVL": ("nvidia-h200", "nvidia-hopper"),
    "NVIDIA H200 MIG 1g.18gb": ("nvidia-hopper",),
    "NVIDIA H2000": (),
    "NVIDIA GH200 480GB": ("nvidia-hopper",),
    "NVIDIA B200": ("nvidia-b200", "nvidia-blackwell"),
    "NVIDIA GB200": ("nvidia-blackwell",),
    "NVIDIA GeForce RTX 5090": ("nvidia-geforce-rtx-5090", "nvidia-blackwell-rtx"),
    "NVIDIA GeForce RTX 5080": ("nvidia-geforce-rtx-5080", "nvidia-blackwell-rtx"),
    "NVIDIA GeForce RTX 5090 Laptop GPU": ("nvidia-blackwell-rtx",),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": ("nvidia-blackwell-rtx",),
    "NVIDIA GeForce GTX 980": (),
    "Something new|sm_86": ("nvidia-ampere",),
    "Something newer|sm_130": (),
}
AMD_NAMES = {  # name, or name|board as AMD's own driver has both
    "AMD Instinct MI100": ("amd-instinct-mi100",),
    "gfx908:sramecc+:xnack-": ("amd-instinct-mi100",),
    "gfx90a:sramecc+:xnack-": ("amd-cdna2",),
    "gfx90a:sramecc+:xnack-|AMD Instinct MI210": ("amd-instinct-mi210", "amd-cdna2"),
    "gfx90a:sramecc+:xnack-|AMD Instinct MI250X/MI250": ("amd-instinct-mi250x", "amd-cdna2"),
    "gfx942:sramecc+:xnack-|AMD Instinct MI300X": ("amd-instinct-mi300x", "amd-cdna3"),
    "gfx942:sramecc+:xnack-|AMD Instinct MI300A": ("amd-instinct-mi300a", "amd-cdna3"),
    "gfx950:sramecc+:xnack-": ("amd-cdna4",),
    "gfx906:sramecc+:xnack-|AMD Radeon VII": ("amd-radeon-vii", "amd-vega"),
    "gfx900:xnack-|Radeon RX Vega 64": ("amd-radeon-rx-vega-64", "amd-vega"),
    "gfx90c:xnack-|Device 1636": ("amd-vega-apu",),
    "Ellesmere|Radeon RX 580 Series": ("amd-radeon-rx-580", "amd-gcn-polaris"),
    "AMD Radeon RX 580 Series (radeonsi, polaris10, LLVM 15.0.7, DRM 3.54, 6.5.0)": (
        "amd-radeon-rx-580", "amd-gcn-polaris",
    ),
    "gfx1010:xnack-|AMD Radeon RX 5700 XT": ("amd-radeon-rx-5700-xt", "amd-rdna1"),
    "AMD Radeon RX 5700 XT (radeonsi, navi10, LLVM 17.0.6, DRM 3.57, 6.8.0)": (
        "amd-radeon-rx-5700-xt", "amd-rdna1-mesa",
    ),
    "gfx1030|AMD Radeon RX 6800 XT": ("amd-radeon-rx-6800-xt", "amd-navi21", "amd-rdna"),
    "AMD Radeon RX 6800 XT (radeonsi, navi21, LLVM 15.0.7, DRM 3.54, 6.5.0-44-generic)": (
        "amd-radeon-rx-6800-xt", "amd-navi21", "amd-rdna-mesa",
    ),
    "AMD Radeon RX 6800 (radeonsi, navi21, LLVM 21.1.6, DRM 3.64, 6.18.2-arch2-1)": (
        "amd-radeon-rx-6800", "amd-navi21", "amd-rdna-mesa",
    ),
    "AMD Radeon RX 6900 XT (radeonsi, navi21, LLVM 18.1.8, DRM 3.59, 6.11.5-zen1-1-zen)": (
        "amd-radeon-rx-6900-xt", "amd-navi21", "amd-rdna-mesa",
    ),
    "gfx1031|AMD Radeon RX 6700 XT": ("amd-radeon-rx-6700-xt", "amd-navi22", "amd-rdna"),
    "gfx1032|AMD Radeon RX 6600": ("amd-radeon-rx-6600", "amd-navi23", "amd-rdna"),
    "gfx1032|AMD Radeon RX 6600 XT": ("amd-navi23", "amd-rdna"),
    "gfx1034": ("amd-navi24", "amd-rdna"),
    "gfx1100|Radeon RX 7900 XTX": ("amd-radeon-rx-7900-xtx", "amd-navi31", "amd-rdna"),
    "gfx1100|AMD Radeon RX 7900 XT": ("amd-radeon-rx-7900-xt", "amd-navi31", "amd-rdna"),
    "gfx1101|AMD Radeon RX 7800 XT": ("amd-radeon-rx-7800-xt", "amd-navi32", "amd-rdna"),
    "gfx1102|AMD Radeon RX 7600": ("amd-radeon-rx-7600", "amd-navi33", "amd-rdna"),
    "gfx1103": ("amd-rdna-apu", "amd-rdna"),
    "gfx1151|AMD Radeon 8060S Graphics": ("amd-apu-strix-halo", "amd-rdna-apu", "amd-rdna"),
    "AMD Radeon Graphics (radeonsi, raphael_mendocino, LLVM 19.1.1, DRM 3.59, 6.11.3)": ("amd-rdna-mesa",),
    "AMD Radeon RX 9070 XT (radeonsi, gfx1201, LLVM 20.1.8, DRM 3.64, 6.16.0)": (
        "amd-radeon-rx-9070-xt", "amd-navi48", "amd-rdna-mesa",
    ),
    "gfx1200|AMD Radeon RX 9060 XT": ("amd-radeon-rx-9060-xt", "amd-navi44", "amd-rdna"),
    "gfx700": (),
}  # fmt: skip
INTEL_NAMES = {
    "Intel(R) Arc(TM) A770 Graphics": ("intel-arc-a770", "intel-xe-hpg"),
    "Mesa Intel(R) Arc(tm) A770 Graphics (DG2)": ("intel-arc-a770", "intel-xe-hpg"),
    "Intel(R) Arc(TM) A750 Graphics": ("intel-arc-a750", "intel-xe-hpg"),
    "Intel(R) Arc(TM) A380 Graphics": ("intel-xe-hpg",),
    "Intel(R) Arc(TM) Pro A40 Graphics": ("intel-xe-hpg",),
    "Intel(R) Graphics [0x56a1]": ("intel-xe-hpg",),
    "Intel(R) Arc(TM) Graphics": ("intel-xe-hpg",),
    "Intel(R) Arc(TM) B580 Graphics": ("intel-arc-b580", "intel-xe2"),
    "Intel(R) Arc(TM) Pro B60 Graphics": ("intel-xe2",),
    "Intel(R) Arc(TM) 140V GPU (16GB)": ("intel-xe2",),
    "Intel(R) Data Center GPU Max 1100": ("intel-data-center-gpu-max-1100", "intel-xe-hpc"),
    "Intel(R) Data Center GPU Max 1550": ("intel-data-center-gpu-max-1550", "intel-xe-hpc"),
    "Intel(R) Data Center GPU Flex 170": ("intel-xe-hpg",),
    "Intel(R) UHD Graphics 630": ("intel-gen9",),
    "Mesa Intel(R) UHD Graphics 630 (CFL GT2)": ("intel-gen9",),
    "Intel(R) HD Graphics 530": ("intel-gen9",),
    "Intel(R) Iris(R) Plus Graphics 655": ("intel-gen9",),
    "Intel(R) Iris(R) Plus Graphics": ("intel-gen11",),
    "Intel(R) Iris(R) Xe Graphics": ("intel-xe-lp",),
    "Intel(R) UHD Graphics 770": ("intel-xe-lp",),
    "Intel(R) UHD Graphics": (),  # Gen11 and Xe-LP have both been called so
}
APPLE_NAMES = {
    "Apple M1": ("apple-m1",),
    "Apple M1 Pro": ("apple-m1-pro",),
    "Apple M2 Max": ("apple-m1-max",),
    "Apple M1 Ultra": ("apple-m1-ultra",),
    "Apple M3 Pro": (),
    "Apple M4": (),
    "Apple M4 Max": (),
}
ARM_NAMES = {  # by Arm's driver, and by Mesa's
    "Mali-G610 r0p0": ("arm-mali-valhall",),
    "Mali-G610 MC4 (Panfrost)": ("arm-mali-valhall",),
    "Immortalis-G925": ("arm-mali-valhall",),
    "Mali-G52": (),
}
QUALCOMM_NAMES = {
    "QUALCOMM Adreno(TM) 740": ("qualcomm-adreno-7xx",),
    "FD740": ("qualcomm-adreno-7xx",),
    "Qualcomm(R) Adreno(TM) X1-85 GPU": ("qualcomm-adreno-7xx",),
    "QUALCOMM Adreno(TM)": (),
    "QUALCOMM Adreno(TM) 840": (),
    "FD630": (),
}
VENDORS = {
    "vendor-nvidia": ("NVIDIA Corporation", NVIDIA_NAMES),
    "vendor-amd": ("Advanced Micro Devices, Inc.", AMD_NAMES),
    "vendor-intel": ("Intel(R) Corporation", INTEL_NAMES),
    "vendor-apple": ("Apple", APPLE_NAMES),
    "vendor-arm": ("ARM", ARM_NAMES),
    "vendor-qualcomm": ("Qualcomm", QUALCOMM_NAMES),
}
SHIPPED = load_profiles()
MEASURED = ("nvidia-h100", "nvidia-h200")  # which have more local memory than their driver reports


@pytest.mark.parametrize(
    ("names", "vendor", "vendor_key", "keys"),
    [(names, vendor, key, keys) for key, (vendor, all_names) in VENDORS.items() for names, keys in all_names.items()],
)
def test_names_as_drivers_spell_them(names, vendor, vendor_key, keys):
    name, *aliases = names.split("|")
    report = Report(name, vendor, "gpu", 10, 1024, 65536, 16384, 64, tuple(aliases))
    assert [file.key for file in matching(report, SHIPPED)] == [*keys, vendor_key, "default-gpu"]
    found = merge(report, SHIPPED)
    assert found.name == name
    assert 32768 <= found.local_memory <= (227_328 if keys and keys[0] in MEASURED else 131_072)
    assert 16384 <= found.l2_cache <= 256 * 2**20
    assert found.l2_line in (64, 128)
    assert 10 * 112 <= found.hardware_threads <= 2048 * 304
    assert found.work_group_size in (256, 384, 512, 1024)


@pytest.mark.parametrize("name", ["V3D 7.1.7.0", "V3D 4.2.14.0"])
def test_raspberry_pi(name):
    """Mesa's driver reports one compute unit and no caches."""
    report = Report(name, "Broadcom", "gpu", 1, 256, 32768, 0, 0)
    assert [file.key for file in matching(report, SHIPPED)] == ["broadcom-v3d", "default-gpu"]
    found = merge(report, SHIPPED)
    assert (found.local_memory, found.l2_cache, found.hardware_threads) == (16384, 131_072, 512)


@pytest.mark.parametrize(
    ("name", "vendor", "keys"),
    [
        ("pthread-skylake-avx512-AMD EPYC 7763 64-Core Processor", "AuthenticAMD", ["vendor-amd-cpu"]),
        ("cpu-haswell-13th Gen Intel(R) Core(TM) i7-13700K", "GenuineIntel", ["vendor-intel-cpu"]),
        ("Intel(R) Xeon(R) 6973P-C", "Intel(R) Corporation", ["vendor-intel-cpu"]),
        ("AMD Ryzen 5 5500", "Intel(R) Corporation", ["vendor-amd-cpu"]),
        ("cpu-neoverse-n1-neoverse-n1", "ARM", ["vendor-arm-cpu"]),
        ("cpu-apple-m1-Apple M1", "Apple", ["vendor-apple-cpu"]),
        ("cpu-rv64", "RISC-V", []),
    ],
)
def test_processors(name, vendor, keys):
    report = Report(name, vendor, "cpu", 8, 4096, 2**20, 2**25, 64)
    assert [file.key for file in matching(report, SHIPPED)] == [*keys, "default-cpu"]
    found = merge(report, SHIPPED)
    assert (found.hardware_threads, found.work_group_size, found.l2_cache) == (8, 1, 2**25)
