"""The path on a device: the steps of `gpu_tok`, written once against `device.xp` and `device.launch`."""
