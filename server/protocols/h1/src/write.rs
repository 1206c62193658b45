//! Writes pieces of requests and responses.

/// Appends a field line.
#[inline]
pub fn field(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.reserve(name.len() + value.len() + 4);
    to.extend_from_slice(name);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal digits.
#[inline]
pub fn decimal(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the line before a chunk of `size` bytes.
pub fn chunk_size(to: &mut Vec<u8>, size: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let count = (64 - (size | 1).leading_zeros()).div_ceil(4);
    for digit in (0..count).rev() {
        to.push(DIGITS[(size >> (4 * digit)) as usize & 15]);
    }
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 4096, 65_535, u64::MAX - 1, u64::MAX] {
            let (mut decimals, mut chunk) = (Vec::new(), Vec::new());
            decimal(&mut decimals, number);
            chunk_size(&mut chunk, number);
            assert_eq!(decimals, number.to_string().into_bytes());
            assert_eq!(chunk, format!("{number:x}\r\n").into_bytes());
        }
    }
}
