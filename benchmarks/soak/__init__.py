"""Whether a flow whose keys are ever new can run for ever: state, files, memory and batch time stay flat."""
