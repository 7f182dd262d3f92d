//! Chooses between the descriptions of slots that an image has.

use super::slots::{Slots, Wanted};
use super::{Image, ImageError, Source, chains, indirect, opcodes};

/// The slots of wanted symbols of a loaded image. `file` is what it was loaded from, if it can be read: an
/// error there is the caller's to note, slots come from the loaded image then.
pub fn slots(
    image: &Image,
    loaded: &impl Source,
    file: Option<&impl Source>,
    wanted: Wanted<'_>,
) -> Result<Slots, ImageError> {
    let mut found = Slots::default();
    if image.opcodes.is_some() {
        opcodes::find(image, loaded, wanted, &mut found.slots)?;
    } else if image.chains.is_some() {
        match file {
            Some(file) => chains::find(image, file, wanted, &mut found.slots)?,
            None => {
                found.without_data = true;
                indirect::find(image, loaded, wanted, &mut found.slots)?;
            }
        }
    }
    // A weak symbol has eager and weak opcodes for the same slot.
    found.slots.sort_unstable();
    found.slots.dedup_by_key(|slot| slot.address);
    Ok(found)
}
