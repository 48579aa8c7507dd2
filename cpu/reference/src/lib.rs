//! An independent reference for WGSL compute.
