## Keys as unsigned integers in the same order ("words"), and the hash of a word. Included by the key
## templates. The word with all bits set is CLHIST_EMPTY, an empty slot; a key that equals it has a slot of
## its own.
typedef ${c_name(spec.bits)} key_t;
typedef ${c_name(spec.word)} word_t;
#define CLHIST_EMPTY ((word_t)-1)
#define CLHIST_NONE 0xffffffffu

// Where a search for a key begins. The seed is another in each call, so no keys collide in all of them.
uint clhist_hash(word_t w, const ulong seed)
{
% if spec.word.itemsize == 8:
    w ^= seed;
    w = (w ^ w >> 32) * 0x9e3779b97f4a7c15ul;
    w = (w ^ w >> 29) * 0xbf58476d1ce4e5b9ul;
    return (uint)(w >> 32);
% else:
    w ^= (uint)seed;
    w = (w ^ w >> 16) * 0x7feb352du;
    w = (w ^ w >> 15) * 0x846ca68bu;
    return w ^ w >> 16;
% endif
}

// The same in local memory, by fewer instructions.
uint2 clhist_factors(const ulong seed)
{
    return (uint2)((uint)seed, (uint)(seed >> 32)) | 1;
}

uint clhist_mixed(const word_t w, const uint2 factors)
{
% if spec.word.itemsize == 8:
    const ulong mixed = (ulong)(uint)w * factors.x + (ulong)(uint)(w >> 32) * factors.y;
    return (uint)(mixed >> 32) ^ (uint)mixed >> 15;
% else:
    const uint mixed = w * factors.x;
    return mixed >> 16 ^ mixed * factors.y >> 12;
% endif
}
