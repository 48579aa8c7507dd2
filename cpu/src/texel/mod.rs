//! Texel formats, addressing and filtering.
