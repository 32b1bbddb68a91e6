"""The GPUs that are emulated, as their drivers present them."""

from __future__ import annotations

from dataclasses import dataclass

EXTENSIONS = (
    "cl_khr_fp64 cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics "
    "cl_khr_local_int32_extended_atomics cl_khr_int64_base_atomics cl_khr_int64_extended_atomics "
    "cl_khr_3d_image_writes cl_khr_byte_addressable_store cl_khr_fp16 cl_khr_gl_sharing "
    "cl_amd_device_attribute_query cl_amd_media_ops cl_amd_media_ops2 cl_khr_image2d_from_buffer cl_khr_subgroups "
    "cl_khr_depth_images cl_amd_copy_buffer_p2p cl_amd_assembly_program"
)


@dataclass(frozen=True)
class Target:
    """One GPU.

    Attributes
    ----------
    name : str
        For the compiler.
    isa : {"cdna", "rdna3", "rdna4"}
        Which of AMD's documents its instructions are in, as tinygrad calls them.
    device, board : str
        CL_DEVICE_NAME, and CL_DEVICE_BOARD_NAME_AMD.
    compute_units : int
        Of the whole GPU.
    cache_bytes, line_bytes : int
        Of the first cache.
    group, local_bytes : int
        The largest work-group, and local memory.
    wide : bool
        Whether an RDNA GPU has waves of 64 work-items, which compilers may choose.
    """

    name: str
    isa: str
    device: str
    board: str
    compute_units: int
    cache_bytes: int = 16384
    line_bytes: int = 64
    group: int = 256
    local_bytes: int = 65536
    wide: bool = False

    @property
    def lanes(self) -> int:
        """Work-items of a wave."""
        return 64 if self.is_gfx9 or self.wide else 32

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the compiler."""
        return (f"-mcpu={self.name.partition('-')[0]}", *["-mwavefrontsize64"] * self.wide)

    @property
    def is_gfx9(self) -> bool:
        """Whether the waves of a work-group share a compute unit and its cache."""
        return self.isa == "cdna"

    @property
    def precedes_gfx940(self) -> bool:
        """Whether caches are kept by instructions on buffers, and there is ``v_mad_f32``."""
        return self.name in ("gfx906", "gfx908", "gfx90a")

    @property
    def splits_thread_ids(self) -> bool:
        """Whether each dimension of a work-item's number comes in a register of its own."""
        return self.name in ("gfx906", "gfx908")


TARGETS = {
    target.name: target
    for target in (
        Target("gfx942", "cdna", "gfx942:sramecc+:xnack-", "AMD Instinct MI300X", 304, 32768, 128),
        Target("gfx1100", "rdna3", "gfx1100", "AMD Radeon RX 7900 XTX", 48, 32768, 128),
        Target("gfx1200", "rdna4", "gfx1200", "AMD Radeon RX 9060 XT", 16, 32768, 128),
        Target("gfx1100-wave64", "rdna3", "gfx1100", "AMD Radeon RX 7900 XTX", 48, 32768, 128, wide=True),
        Target("gfx90a", "cdna", "gfx90a:sramecc+:xnack-", "AMD Instinct MI210", 104),
        Target("gfx908", "cdna", "gfx908:sramecc+:xnack-", "AMD Instinct MI100", 120),
        Target("gfx906", "cdna", "gfx906:sramecc+:xnack-", "AMD Radeon VII", 60),
    )
}
EVERY_RUN = ("gfx942", "gfx1100", "gfx1200")  # the others by a flag
# Two GPUs with waves of 32: where no target is named, each case runs on one of them.
SHARING = ("gfx1100", "gfx1200")
