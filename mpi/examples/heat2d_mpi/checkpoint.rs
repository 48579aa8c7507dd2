//! A plate in a file, to go on from later, with any number of ranks.
//!
//!     magic (8 bytes) | width | height | steps made | heat, row by row        (numbers of 32 bits, little-endian)
//!
//! The file is complete or not there: written beside the final name, and then renamed.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;

use crate::cells::Plate;

const MAGIC: &[u8; 8] = b"tombheat";

/// Writes the heat of a plate, after `steps` steps.
pub fn save(path: &Path, plate: &Plate, steps: u32) -> Result<(), Box<dyn Error>> {
    let beside = path.with_extension("part");
    let mut file = BufWriter::new(File::create(&beside)?);
    file.write_all(MAGIC)?;
    for number in [plate.width, plate.height, steps] {
        file.write_all(&number.to_le_bytes())?;
    }
    for heat in &plate.heat {
        file.write_all(&heat.to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(std::fs::rename(beside, path)?)
}

/// Reads a plate, and the number of steps made. The conducting matter is not in the file: matter never changes.
pub fn load(path: &Path) -> Result<(Plate, u32), Box<dyn Error>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut magic = [0; 8];
    file.read_exact(&mut magic)?;
    if &magic != MAGIC {
        return Err(format!("{} holds no plate", path.display()).into());
    }
    let mut number = || -> Result<u32, Box<dyn Error>> {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let (width, height, steps) = (number()?, number()?, number()?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u128 != u128::from(width) * u128::from(height) * 4 {
        let found = bytes.len();
        return Err(format!(
            "{}: {found} bytes are no {width} x {height} cells",
            path.display()
        )
        .into());
    }
    let mut plate = Plate::new(width, height);
    let heat = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|cell| i32::from_le_bytes(*cell));
    plate.heat = heat.collect();
    Ok((plate, steps))
}
