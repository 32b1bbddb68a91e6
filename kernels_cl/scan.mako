## An inclusive scan of an array in local memory with one element for each work-item (Hillis and Steele).
<%def name="inclusive(sums, lane, lanes)">\
barrier(CLK_LOCAL_MEM_FENCE);
        for (uint step = 1; step < ${lanes}; step *= 2) {
            const uint add = ${lane} >= step ? ${sums}[${lane} - step] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            ${sums}[${lane}] += add;
            barrier(CLK_LOCAL_MEM_FENCE);
        }\
</%def>
