//! Outputs of made-up trends.
