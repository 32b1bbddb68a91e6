"""AMD GPUs that are not here: clhist's kernels compiled for them and executed, instruction by instruction.

    .ci/emulated/prepare .emulated                    once: compiler, device library, emulator of instructions
    python .ci/emulated --target gfx942 --faults      the cases, and kernels that are broken on purpose

The OpenCL device of the host's processor is presented to clhist as an AMD GPU, and its memory is used as it is; but
programs are compiled by clang for the target, and launches run here. So what clhist probes, plans, renders and launches
is what it would be on such a GPU.

========== =============================================================================================================
module     what it does
========== =============================================================================================================
places     where the prepared tools are, and what to say when they are not
targets    the GPUs, as their drivers present them
compiler   OpenCL C to a code object
notes      MessagePack, in which a code object's notes are written
objects    a code object in memory: kernels, arguments, relocations
tables     the structures that Python and C share; C is in core/: waves, barriers, memory, caches, atomics, counts
alu        machine code for the instructions of the ALUs, by tinygrad's emulator of AMD's documents
decode     what an instruction does, for C; `operands` those that access memory
launch     arguments and registers at the start of a kernel, and its run; faults and hangs are exceptions
device     the host's device presented as an AMD GPU, in the place of what clhist uses of PyOpenCL
cases      what is executed, and what that covers
faults     kernels that are broken on purpose, each of which has to be noticed
isa        what compilers must not make of a lock
counting   instructions, transactions, conflicts and repeated atomics for each element; `bench` prints them
run        the command; `--pytest` runs test files of clhist's on an emulated GPU
========== =============================================================================================================

What makes this a test: waves interleave at random, registers, local memory and scratch memory begin as garbage,
accesses are checked for bounds, atomics for alignment, and a limit of instructions shows hangs. Memory is weak: each
compute unit has a cache that only instructions made for it go around or empty, and stores stay unseen until a wave
waits for them.
"""
