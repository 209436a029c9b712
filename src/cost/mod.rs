//! What a step of the engine costs.
