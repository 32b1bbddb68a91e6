## Numbers many distinct keys on a GPU, by programs of which a call builds those that it runs:
##
##   sample            a sorted sample says how many distinct keys there are, and where ranges begin (key_sample.mako)
##   find, find_more   few keys: looks all elements up among those of the sample (key_lookup.mako)
##   ranges            many keys: groups elements by ranges of keys, then numbers each range (key_ranges.mako)
##
## Their counters are in the same state. Used by clhist/grouped/sampled_keys.py. Decision 0019.
% if spec.word.itemsize == 8:
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
<%include file="key_words.mako"/>
#define CLHIST_KNOWN ${max(known, sizes.more_known)}
// Words of the state, counts but for FAILED: distinct keys, whether the numbering failed, elements with the key that equals
// an empty slot, elements without a key, keys for which there is room, keys that occur once in the sample, and among more
// elements the bits that are set, and these elements. Behind ENDS, as 64 bits, the least and the greatest key.
enum { DIFFERENT, FAILED, ONES, MISSING, KEYS, ONCE, SET, SEEN, ENDS };

<%include file="${'key_lookup.mako' if stage.startswith('find') else f'key_{stage}.mako'}"/>
