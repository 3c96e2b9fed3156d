"""Moments of gradients and hessians per leaf, the certificate, and the leaf weights computed from them."""
