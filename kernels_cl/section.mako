## `fill(name, ...)`: the sections of a sweep that features fill or replace. Each is a def of this name in the
## template of a feature; sweep.mako lists which template has which.

## Renders the section of all features that have it, in their order.
<%def name="fill(name, *arguments)">\
% for feature in spec.features:
% if name in feature.sections:
${getattr(local.get_namespace(feature.template), name)(feature, *arguments)}\
% endif
% endfor
</%def>
