//! Mathematical functions over lanes.
