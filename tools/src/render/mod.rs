//! What summaries look like: as text in a terminal, as JSON, as a page.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod markup;
pub(crate) mod text;
