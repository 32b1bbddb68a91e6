## Rows in the order of their bins: where those of each bin begin is searched for. A bin with very many rows is cut where
## the number of a row is a multiple of a piece, so that the number of a piece says which rows it has.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%
    sweep, text, size = spec.sweep, spec.text, spec.sweep.work_group_size
%>\
#define CLHIST_ROWS_BEGIN(bin) clhist_begins[bin]
#define CLHIST_ROWS_COUNT(bin) (clhist_begins[(bin) + 1] - clhist_begins[bin])
#define CLHIST_ROWS_ID(k) (k)
// Places 2 k and 2 k + 1 are of the rows from k times a piece on: of the bin that began before them, and of one that begins there.
#define CLHIST_PLACE_OF_PIECE(first, number) ((number) ? (first) + 2 * (number) - 1 : (first))

// Searches for the first row of each bin, and behind all. A search halves the same ranges for every bin, so that the
// bounds do not decrease even if the indices do: then rows may be combined by wrong bins, but no access is out of bounds.
${kernel.begin("bounds", size)}
${types.arrays(sweep)}\
    const uint clhist_item = get_global_id(0);
    for (uint k = clhist_item; k < clhist_cleared; k += get_global_size(0))
        clhist_counts[k] = 0;
    if (clhist_item > clhist_row_bins)
        return;
    uint low = 0, high = clhist_elements;
    while (low < high) {
        const uint i = low + (high - low) / 2;
        if ((long)(${text.bin}) < (long)clhist_item)
            low = i + 1;
        else
            high = i;
    }
    clhist_begins[clhist_item] = low;
}

<%def name="piece()">\
        const uint clhist_from = at / 2 * clhist_piece;
        is_there = clhist_from < clhist_elements;
        if (is_there) {
            const uint clhist_to = clhist_from + min(clhist_piece, clhist_elements - clhist_from);
            const uint i = at % 2 ? clhist_to - 1 : clhist_from, bin = CLHIST_BIN(${spec.text.bin});
            is_there = bin < clhist_row_bins && CLHIST_ROWS_COUNT(bin) > clhist_piece
                && (CLHIST_ROWS_BEGIN(bin) >= clhist_from) == at % 2;
            if (is_there) {
                begin = max(CLHIST_ROWS_BEGIN(bin), clhist_from);
                end = max(min(CLHIST_ROWS_BEGIN(bin + 1), clhist_to), begin);
            }
        }
</%def>
<%def name="shared()">\
    for (uint clhist_part = get_group_id(0); clhist_part < clhist_slots / 2; clhist_part += get_num_groups(0)) {
        const uint clhist_from = clhist_part * clhist_piece;
        if (clhist_from >= clhist_elements)
            return;
        const uint i = clhist_from + min(clhist_piece, clhist_elements - clhist_from) - 1, at = CLHIST_BIN(${spec.text.bin});
        // The same for all work-items. The bin of the last row is joined by the group of the piece that it begins in.
        if (at >= clhist_row_bins || CLHIST_ROWS_COUNT(at) <= clhist_piece || CLHIST_ROWS_BEGIN(at) / clhist_piece != clhist_part)
            continue;
        const uint clhist_first = 2 * clhist_part + 1;
        const uint clhist_parts = (CLHIST_ROWS_BEGIN(at + 1) - 1) / clhist_piece - clhist_part + 1;
        const uint clhist_row = get_local_id(0) / ${spec.lanes};
</%def>
