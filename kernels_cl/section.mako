## The sections of a sweep that features fill, or take over: each is a def of this name in the template of a feature.

## What all features that have something for a section add to it, in their order.
<%def name="fill(name, *given)">\
% for feature in spec.features:
% if name in feature.sections:
${getattr(local.get_namespace(feature.template), name)(feature, *given)}\
% endif
% endfor
</%def>
