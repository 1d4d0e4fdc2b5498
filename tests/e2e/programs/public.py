"""The public_ scripts one after the other, in one process to save time."""

import public_loader
import public_offload
import public_optimizers

if __name__ == "__main__":
    public_loader.main()
    public_offload.train()
    public_offload.chain()
    public_optimizers.adversaries()
    public_optimizers.fit()
