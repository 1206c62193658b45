//! Decodes header sections (RFC 7541 sections 3 and 6).

use super::static_table::{self, COUNT, FIELDS};
use super::table::{Table, TableField};
use fieldcode::{
    Bomb, HeadLimits, IntegerError, Name, Section, decode_integer, huffman_decode, is_field_value,
};

/// The default of SETTINGS_HEADER_TABLE_SIZE, which is not changed.
const TABLE_SIZE: u16 = 4096;

/// Why a section cannot be decoded. In either case the connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// COMPRESSION_ERROR.
    Malformed(&'static str),
    /// Far beyond the limits.
    Bomb,
}

impl From<Bomb> for DecodeError {
    fn from(Bomb: Bomb) -> DecodeError {
        DecodeError::Bomb
    }
}

impl From<IntegerError> for DecodeError {
    fn from(error: IntegerError) -> DecodeError {
        DecodeError::Malformed(match error {
            IntegerError::Incomplete => "a header section that ends inside an integer",
            IntegerError::TooLarge => "an integer in a header section that is too large",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    changes: u64,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { table: Table::new(TABLE_SIZE), changes: 0 }
    }

    #[cfg(test)]
    pub(super) fn with_table_size(size: u16) -> Decoder {
        Decoder { table: Table::new(size), changes: 0 }
    }

    #[cfg(test)]
    pub(super) fn facts(&self) -> (usize, Vec<String>) {
        self.table.facts()
    }

    /// Returns how often the table has been changed. While this is equal, the same block has the same meaning.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// Decodes a whole block into `section`.
    ///
    /// # Errors
    /// The state is lost, or the section is an attack.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        section: &mut Section,
        limits: &HeadLimits,
    ) -> Result<(), DecodeError> {
        let mut at = 0;
        let mut begun = false;
        while let Some(&first) = block.get(at) {
            if first & 0x80 != 0 {
                let index = decode_integer(block, &mut at, 7)?;
                let found = self.find(index)?;
                section.known(found.kind, found.text, found.name_len, found.good, limits)?;
            } else if first & 0xe0 == 0x20 {
                self.changes += 1;
                let size = decode_integer(block, &mut at, 5)?;
                let size = u16::try_from(size).ok().filter(|&size| size <= TABLE_SIZE && !begun);
                self.table.resize(size.ok_or(DecodeError::Malformed(
                    "a table size update that is too large or not at the start of a header section",
                ))?);
                continue;
            } else {
                let indexed = first & 0x40 != 0;
                self.literal(block, &mut at, indexed, section, limits)?;
            }
            begun = true;
        }
        Ok(())
    }

    #[inline]
    fn find(&self, index: u64) -> Result<TableField<'_>, DecodeError> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index > COUNT {
            return self
                .table
                .get(index - COUNT - 1)
                .ok_or(DecodeError::Malformed("an index beyond the header tables"));
        }
        let field = index
            .checked_sub(1)
            .and_then(|at| FIELDS.get(at))
            .ok_or(DecodeError::Malformed("the index 0 in a header section"))?;
        Ok(TableField {
            text: field.text.as_bytes(),
            name_len: field.name_len,
            kind: static_table::kind(index),
            good: true,
        })
    }

    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        indexed: bool,
        section: &mut Section,
        limits: &HeadLimits,
    ) -> Result<(), DecodeError> {
        let index = decode_integer(block, at, if indexed { 6 } else { 4 })?;
        let start = section.text().len();
        let kind = if index == 0 {
            string(block, at, section.text())?;
            Name::of(&section.text()[start..])
        } else {
            let found = self.find(index)?;
            section.text().extend_from_slice(&found.text[..found.name_len]);
            found.kind
        };
        let text = section.text();
        let name_len = text.len() - start;
        string(block, at, text)?;
        let good = is_field_value(&text[start + name_len..]);
        if indexed {
            self.changes += 1;
            self.table.insert(&text[start..], name_len, kind, good);
        }
        section.decoded(kind, start, name_len, good, limits)?;
        Ok(())
    }
}

/// Appends a string literal (RFC 7541 section 5.2).
#[inline]
fn string(block: &[u8], at: &mut usize, to: &mut Vec<u8>) -> Result<(), DecodeError> {
    let huffman = block.get(*at).is_some_and(|&first| first & 0x80 != 0);
    let len = usize::try_from(decode_integer(block, at, 7)?).unwrap_or(usize::MAX);
    let coded = at.checked_add(len).and_then(|end| block.get(*at..end));
    let coded = coded.ok_or(DecodeError::Malformed("a header section that ends inside a string"))?;
    *at += len;
    if huffman {
        huffman_decode(coded, to)
            .ok_or(DecodeError::Malformed("a string that is not in the Huffman code"))?;
    } else {
        to.extend_from_slice(coded);
    }
    Ok(())
}
