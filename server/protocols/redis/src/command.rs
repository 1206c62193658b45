//! Encodes commands (RESP). A command is an array of its words: [`array`], then as many [`bulk`] or [`number`].

use std::fmt::Arguments;
use std::io::Write;

/// Writes a command with the given words.
pub fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    array(out, words.len());
    words.iter().for_each(|word| bulk(out, word));
}

/// Starts a command of `count` words.
pub fn array(out: &mut Vec<u8>, count: usize) {
    header(out, b'*', count);
}

/// Writes a word.
pub fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    header(out, b'$', text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number as a word. Bytes beyond 32 are cut off; no number is that long.
pub fn number(out: &mut Vec<u8>, number: Arguments<'_>) {
    let mut text = [0; 32];
    let mut rest = &mut text[..];
    // Fails only when the buffer is full.
    let _ = rest.write_fmt(number);
    let length = 32 - rest.len();
    bulk(out, &text[..length]);
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    if number < 10 {
        out.push(b'0' + number as u8);
    } else {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{number}");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_lengths() {
        let mut out = Vec::new();
        words(&mut out, &[b"SET", b"twelve bytes", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$12\r\ntwelve bytes\r\n$0\r\n\r\n");
        out.clear();
        number(&mut out, format_args!("{}", -12));
        number(&mut out, format_args!("{:?}", 1.5));
        assert_eq!(out, b"$3\r\n-12\r\n$3\r\n1.5\r\n");
    }
}
