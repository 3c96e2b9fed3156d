"""Per leaf: the sample moments of gradients and hessians, the certificate, and the weights that follow."""
