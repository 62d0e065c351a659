//! Deflate: a small body that grows large: zeros in gzip (RFC 1951 and 1952), about one byte for every 160 of them. Written by
//! hand, since this is the only thing that the suite ever compresses.

/// Longest match of the format, in bytes.
const MATCH_BYTES: usize = 258;

/// A gzip file of `length` zeros, valid to its checksum.
pub(super) fn gzip_of_zeros(length: usize) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut bits = Bits { bytes: &mut bytes, filled: 0, next: 0 };
    // One block, the last, with the fixed codes.
    bits.put(0b1, 1);
    bits.put(0b01, 2);
    let mut left = length;
    if left > 0 {
        bits.literal(0);
        left -= 1;
    }
    while left >= MATCH_BYTES {
        // Length 258 is symbol 285, of the codes of eight bits that begin with 1100 0000 at symbol 280; distance 1 is symbol 0
        // of five bits.
        bits.code(0b1100_0101, 8);
        bits.code(0, 5);
        left -= MATCH_BYTES;
    }
    for _ in 0..left {
        bits.literal(0);
    }
    bits.code(0, 7);
    bits.finish();
    bytes.extend(crc32_of_zeros(length).to_le_bytes());
    // The length modulo 2^32, as the format wants it.
    bytes.extend((length as u32).to_le_bytes());
    bytes
}

struct Bits<'b> {
    bytes: &'b mut Vec<u8>,
    filled: u32,
    next: u8,
}

impl Bits<'_> {
    /// The lowest `count` bits of a value, the lowest first.
    fn put(&mut self, value: u32, count: u32) {
        for at in 0..count {
            let bit = u8::from(value >> at & 1 == 1);
            self.next |= bit << self.filled;
            self.filled += 1;
            if self.filled == 8 {
                self.bytes.push(self.next);
                (self.filled, self.next) = (0, 0);
            }
        }
    }

    /// A Huffman code of `count` bits, the highest first.
    fn code(&mut self, code: u32, count: u32) {
        for at in (0..count).rev() {
            self.put(code >> at & 1, 1);
        }
    }

    /// A byte below 144, as itself.
    fn literal(&mut self, byte: u8) {
        self.code(0b0011_0000 + u32::from(byte), 8);
    }

    fn finish(&mut self) {
        if self.filled > 0 {
            self.bytes.push(self.next);
        }
    }
}

fn crc32_of_zeros(length: usize) -> u32 {
    let mut crc = u32::MAX;
    for _ in 0..length {
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_stand_for_many_and_the_checksum_is_the_known_one() {
        let bytes = gzip_of_zeros(1 << 20);
        assert!(bytes.len() < 7_000, "{}", bytes.len());
        // Of 32 and of 1,048,576 zeros, as any other implementation says.
        assert_eq!(crc32_of_zeros(32), 0x190a_55ad);
        assert_eq!(bytes[bytes.len() - 8..bytes.len() - 4], 0xa738_ea1c_u32.to_le_bytes());
        assert_eq!(bytes[bytes.len() - 4..], (1_u32 << 20).to_le_bytes());
    }
}
