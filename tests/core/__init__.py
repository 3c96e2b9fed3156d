"""Trees, routes, kernels, leaf moments, certificates and variances: what the package computes."""
