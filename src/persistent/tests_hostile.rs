//! Devices that write what no server writes: kernels that are spoiled before they are compiled, on every adapter.
