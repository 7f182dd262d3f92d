//! What summaries look like: as text in a terminal, as JSON, as a page.

pub mod html;
pub(crate) mod json;
pub(crate) mod text;
