"""JAX: a small network, trained a few steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax._src import hardware_utils

# JAX looks for device files, which a soft GPU does not have. This shows what comes after that.
hardware_utils.has_visible_nvidia_gpu = lambda: True


def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Return how far it is from what it should be."""
    return jnp.square(jnp.tanh(x @ weights) - 0.5).mean()


def main() -> None:
    print(f"devices {jax.devices('cuda')}", flush=True)
    weights = jax.random.normal(jax.random.key(1), (16, 16))
    x = jax.random.normal(jax.random.key(2), (4, 16))
    step = jax.jit(jax.value_and_grad(loss))
    for _ in range(4):
        value, gradient = step(weights, x)
        weights = weights - 0.1 * gradient
        print(f"rank=0 loss={float(value).hex()}", flush=True)


if __name__ == "__main__":
    main()
