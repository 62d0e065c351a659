//! Ink: every colour of the page once, by what it stands for, with its value on light and on dark paper. The hues are
//! told apart by colour-blind readers too, and no colour carries a meaning alone.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// One colour by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ink {
    /// Name of the variable in the style sheet.
    name: &'static str,
    light: u32,
    dark: u32,
}

const fn ink(name: &'static str, light: u32, dark: u32) -> Ink {
    Ink { name, light, dark }
}

/// The page itself.
pub(super) const PAPER: Ink = ink("paper", 0xfd_fdfc, 0x14_181d);
/// Cards, and the shading of every other state.
pub(super) const PANEL: Ink = ink("panel", 0xf3_f4f2, 0x1d_2329);
/// Text.
pub(super) const TEXT: Ink = ink("text", 0x1a_2027, 0xe6_e9ec);
/// Text of less weight: axes, units, notes.
pub(super) const MUTED: Ink = ink("muted", 0x5b_6570, 0x9a_a5b0);
/// Lines of a grid or a table.
pub(super) const RULE: Ink = ink("rule", 0xdd_e0dd, 0x30_3841);
/// A bound or an objective.
pub(super) const BOUND: Ink = ink("bound", 0x2b_3038, 0xd5_dae0);
/// Of a verdict.
pub(super) const PASS: Ink = ink("pass", 0x1d_7a4c, 0x5c_c992);
/// Of a verdict, and of a figure that misses its bound.
pub(super) const FAIL: Ink = ink("fail", 0xb3_2318, 0xff_8a7a);
/// Of a verdict.
pub(super) const OPEN: Ink = ink("open", 0x8f_5f00, 0xe8_b54a);

/// The policy that is compared with.
const BEFORE: Ink = ink("before", 0xc8_5a11, 0xf2_9a5c);
/// The policy that is judged.
const AFTER: Ink = ink("after", 0x0b_67b2, 0x62_b3f5);
/// Further things of one kind: the policies between the first and the last when they are few, or states.
const FURTHER: [Ink; 4] = [
    ink("hue-1", 0x00_8f6b, 0x3f_cfa6),
    ink("hue-2", 0xa8_4d87, 0xe0_95c4),
    ink("hue-3", 0x6b_5fb5, 0xaa_a0f0),
    ink("hue-4", 0x8a_7300, 0xd9_c24a),
];
/// With more policies than this, those between the first and the last share one ink.
pub(super) const POLICIES_TOLD_APART: usize = 4;

/// One part of a whole: its fill, and what is written on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) fill: Ink,
    pub(super) on: Ink,
}

/// On all fills but one.
const ON_FILL: Ink = ink("on-fill", 0x10_151a, 0x10_151a);
const ON_WINE: Ink = ink("on-wine", 0xff_fffe, 0x0f_1419);

const fn part(name: &'static str, light: u32, dark: u32) -> Part {
    Part { fill: ink(name, light, dark), on: ON_FILL }
}

/// Parts of a whole: the two waits are warm, work is cool, what is left is grey.
pub(super) const PARTS: [Part; 6] = [
    Part { fill: ink("wine", 0x88_2255, 0xd0_6b9c), on: ON_WINE },
    part("rose", 0xdd_7f8b, 0xf0_9aa5),
    part("sky", 0x7c_bfe0, 0x6a_b3d8),
    part("teal", 0x4f_b3a2, 0x4f_bba8),
    part("sand", 0xd6_c46a, 0xcf_bd63),
    part("grey", 0xb4_b9be, 0x8d_9690),
];

impl Ink {
    /// The value on light paper, which is what a plot is drawn with.
    pub(super) const fn rgb(self) -> RGBColor {
        let [_, r, g, b] = self.light.to_be_bytes();
        RGBColor(r, g, b)
    }

    /// The background of its mark in a legend, dashed like its lines.
    pub(super) fn swatch(self) -> String {
        let name = self.name;
        if self == BEFORE {
            return format!(
                "background:repeating-linear-gradient(90deg,var(--{name}) 0 4px,transparent 4px 6px)"
            );
        }
        format!("background:var(--{name})")
    }
}

/// The ink of the policy at `index` of `policies`: the first is compared with, the last is judged.
pub(super) fn policy(index: usize, policies: usize) -> Ink {
    match index {
        last if last + 1 >= policies => AFTER,
        0 => BEFORE,
        between if policies <= POLICIES_TOLD_APART => FURTHER[(between - 1) % FURTHER.len()],
        _ => MUTED,
    }
}

/// The ink of one of several things that are no policies.
pub(super) fn hue(index: usize) -> Ink {
    FURTHER[index % FURTHER.len()]
}

fn all() -> impl Iterator<Item = Ink> {
    let single = [PAPER, PANEL, TEXT, MUTED, RULE, BOUND, PASS, FAIL, OPEN, ON_FILL, ON_WINE, BEFORE, AFTER];
    single.into_iter().chain(FURTHER).chain(PARTS.map(|part| part.fill))
}

/// The rules of the style sheet that name colours. Plots carry their colours as attributes, which any rule overrides: so
/// one drawing serves both papers, and the old policy's lines are dashed wherever they are.
pub(super) fn style_sheet() -> String {
    let variables = |value: fn(Ink) -> u32| {
        all().fold(String::new(), |mut text, ink| {
            let _ = write!(text, "--{}:#{:06x};", ink.name, value(ink));
            text
        })
    };
    let mut text = format!(":root{{color-scheme:light dark;{}}}\n", variables(|ink| ink.light));
    let _ = writeln!(text, "@media(prefers-color-scheme:dark){{:root{{{}}}}}", variables(|ink| ink.dark));
    for ink in all() {
        let (name, value) = (ink.name, ink.light);
        let _ = write!(text, "[fill=\"#{value:06X}\"]{{fill:var(--{name})}}");
        let _ = writeln!(text, "[stroke=\"#{value:06X}\"]{{stroke:var(--{name})}}");
    }
    let _ = writeln!(text, "polyline[stroke=\"#{:06X}\"]{{stroke-dasharray:22 10}}", BEFORE.light);
    let _ = writeln!(text, "polyline[stroke=\"#{:06X}\"]{{stroke-dasharray:14 10}}", BOUND.light);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_inks_share_a_name_or_a_value_by_which_a_rule_would_find_the_other() {
        let count = all().count();
        assert_eq!(all().map(|ink| ink.name).collect::<BTreeSet<_>>().len(), count);
        assert_eq!(all().map(|ink| ink.light).collect::<BTreeSet<_>>().len(), count);
        assert_eq!(all().map(|ink| ink.dark).collect::<BTreeSet<_>>().len(), count);
    }

    #[test]
    fn a_policy_that_is_alone_is_the_judged_one() {
        assert_eq!(policy(0, 1), AFTER);
        assert_eq!((policy(0, 2), policy(1, 2)), (BEFORE, AFTER));
        assert_eq!((policy(1, 3), policy(2, 3)), (FURTHER[0], AFTER));
        assert_eq!((policy(0, 9), policy(4, 9), policy(8, 9)), (BEFORE, MUTED, AFTER));
        assert_eq!(policy(3, 0), AFTER, "never a panic");
    }

    /// WCAG's contrast of two colours.
    fn contrast(one: u32, other: u32) -> f64 {
        let luminance = |value: u32| {
            let [_, rgb @ ..] = value.to_be_bytes();
            let linear = rgb.map(|byte| {
                let share = f64::from(byte) / 255.0;
                if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn text_can_be_read_on_both_papers() {
        let words = [TEXT, MUTED, BOUND, PASS, FAIL, OPEN];
        for ink in words {
            assert!(
                contrast(ink.light, PAPER.light) >= 4.5 && contrast(ink.light, PANEL.light) >= 4.5,
                "{ink:?}"
            );
            assert!(
                contrast(ink.dark, PAPER.dark) >= 4.5 && contrast(ink.dark, PANEL.dark) >= 4.5,
                "{ink:?}"
            );
        }
        for Part { fill, on } in PARTS {
            assert!(contrast(fill.light, on.light) >= 4.5 && contrast(fill.dark, on.dark) >= 4.5, "{fill:?}");
        }
        for ink in [BEFORE, AFTER].into_iter().chain(FURTHER) {
            assert!(contrast(ink.light, PAPER.light) >= 3.0, "{ink:?}");
            assert!(contrast(ink.dark, PAPER.dark) >= 3.0, "{ink:?}");
        }
    }
}
