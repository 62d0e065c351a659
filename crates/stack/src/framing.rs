//! Framing: follows the length prefixes of gRPC messages through a response, to bound each message before anybody
//! buffers it and to notice a response that ends within one.

use bytes::Buf;

/// One byte of flags and four of length.
const PREFIX_BYTES: usize = 5;

/// A message is declared larger than the bound.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) declared_bytes: u32,
}

/// Where in the sequence of messages a response stands.
#[derive(Debug)]
pub(crate) struct Framing {
    bytes_max: u32,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    body_left: u32,
}

impl Framing {
    pub(crate) const fn new(bytes_max: u32) -> Self {
        Self { bytes_max, prefix: [0; PREFIX_BYTES], prefix_filled: 0, body_left: 0 }
    }

    /// True between messages.
    pub(crate) const fn at_boundary(&self) -> bool {
        self.prefix_filled == 0
    }

    /// Takes note of the next bytes of the response.
    pub(crate) fn advance(&mut self, mut data: &[u8]) -> Result<(), TooLarge> {
        while !data.is_empty() {
            if self.prefix_filled < PREFIX_BYTES {
                let taken = data.len().min(PREFIX_BYTES - self.prefix_filled);
                self.prefix[self.prefix_filled..][..taken].copy_from_slice(&data[..taken]);
                self.prefix_filled += taken;
                data = &data[taken..];
                if self.prefix_filled < PREFIX_BYTES {
                    return Ok(());
                }
                self.body_left = (&self.prefix[1..]).get_u32();
                if self.body_left > self.bytes_max {
                    return Err(TooLarge { declared_bytes: self.body_left });
                }
            }
            let taken = data.len().min(self.body_left as usize);
            // `taken` is at most `body_left`, so it fits.
            self.body_left -= u32::try_from(taken).unwrap_or(self.body_left);
            data = &data[taken..];
            if self.body_left == 0 {
                self.prefix_filled = 0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(len).expect("small").to_be_bytes());
        bytes.extend(std::iter::repeat_n(7, len));
        bytes
    }

    #[test]
    fn boundaries_are_found_however_the_bytes_are_cut() {
        let bytes: Vec<u8> = [0, 3, 0, 10].into_iter().flat_map(message).collect();
        // Prefix sums of the message lengths: exactly there the response may end.
        let boundaries = [0, 5, 13, 18, 33];
        for cut in 1..=bytes.len() {
            let mut framing = Framing::new(10);
            let mut seen = 0;
            for chunk in bytes.chunks(cut) {
                framing.advance(chunk).expect("within the bound");
                seen += chunk.len();
                assert_eq!(framing.at_boundary(), boundaries.contains(&seen), "cut {cut}, seen {seen}");
            }
        }
    }

    #[test]
    fn the_bound_holds_at_the_prefix_and_one_above_it() {
        assert_eq!(Framing::new(10).advance(&message(10)), Ok(()));
        assert_eq!(Framing::new(10).advance(&message(11)[..5]), Err(TooLarge { declared_bytes: 11 }));
        assert_eq!(
            Framing::new(10).advance(&[0, 255, 255, 255, 255]),
            Err(TooLarge { declared_bytes: u32::MAX })
        );
        let mut second = message(2);
        second.extend(message(11));
        assert_eq!(Framing::new(10).advance(&second), Err(TooLarge { declared_bytes: 11 }));
    }
}
