"""Statistics by the bins of axes (`clhist.axes`): `sweep` combines values by the bins of one axis or several."""
