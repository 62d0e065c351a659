//! Plot: what all plots have in common: an SVG that says what it shows, axes with round ticks, and a plane that data are
//! drawn on. Labels are placed by their anchors and never by a guess at their width, so that no font is needed.

use std::io;

use maud::{Markup, PreEscaped, html};
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    drawing::DrawingAreaErrorKind,
    prelude::{
        Cartesian2d, Circle, Color, DrawingArea, IntoDrawingArea, PathElement, Rectangle, SVGBackend,
        ShapeStyle, Text,
    },
    style::{
        FontDesc, FontFamily, FontStyle, FontTransform, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::ink::{BOUND, Ink, MUTED, PAPER, RULE};

/// Units of a drawing per pixel of the page: the backend has whole units only.
const FINE: i32 = 4;
/// Of labels: 12 pixels of the page. The backend divides sizes by the last number.
const FONT_SIZE: f64 = 12.0 * FINE as f64 * 1.24;

/// What drawing may end with; a plot in memory has no reason to fail.
pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Where a label stands, seen from its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Left,
    Right,
    Middle,
}

/// A sheet to draw on, in pixels of the page.
pub(super) struct Sheet<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// One figure of the page: caption, legend and a plot with `title` as its accessible name.
pub(super) fn figure(
    title: &str,
    caption: Markup,
    legend: &[(Ink, String)],
    size: (i32, i32),
    draw: impl FnOnce(&Sheet<'_>) -> Drawn,
) -> Markup {
    html! {
        figure {
            figcaption { (caption) }
            @if !legend.is_empty() { (self::legend(legend)) }
            (svg(title, size, draw))
        }
    }
}

/// What the inks stand for.
pub(super) fn legend(entries: &[(Ink, String)]) -> Markup {
    html! {
        ul.legend {
            @for (ink, name) in entries { li { span.swatch style=(ink.swatch()) {} (name) } }
        }
    }
}

/// A drawing of `size` pixels with `title` as its accessible name.
pub(super) fn svg(title: &str, size: (i32, i32), draw: impl FnOnce(&Sheet<'_>) -> Drawn) -> Markup {
    let (width, height) = (size.0.max(1) * FINE, size.1.max(1) * FINE);
    let mut text = String::new();
    let drawn = {
        let backend = SVGBackend::with_string(&mut text, (width.unsigned_abs(), height.unsigned_abs()));
        let sheet = Sheet { area: backend.into_drawing_area() };
        draw(&sheet).and_then(|()| sheet.area.present())
    };
    // The backend's own opening tag has a fixed size and no name.
    match (drawn, text.split_once('>')) {
        (Ok(()), Some((_, body))) => html! {
            svg role="img" aria-label=(title) viewBox=(format!("0 0 {width} {height}"))
                style=(format!("max-width:{}px", size.0)) {
                title { (title) }
                (PreEscaped(body.strip_suffix("</svg>\n").unwrap_or(body)))
            }
        },
        (Err(error), _) => html! { p.none { "This plot could not be drawn: " (error.to_string()) } },
        (Ok(()), None) => html! { p.none { "This plot could not be drawn." } },
    }
}

impl<'a> Sheet<'a> {
    /// Writes `text` at a point.
    pub(super) fn label(&self, text: &str, at: (f64, f64), anchor: Anchor, ink: Ink) -> Drawn {
        self.write(text, fine(at), anchor, ink, false)
    }

    /// As [`Sheet::label`], in bold.
    pub(super) fn bold(&self, text: &str, at: (f64, f64), anchor: Anchor, ink: Ink) -> Drawn {
        self.write(text, fine(at), anchor, ink, true)
    }

    /// As [`Sheet::label`], read from below, ending at its point.
    pub(super) fn upright(&self, text: &str, at: (f64, f64), ink: Ink) -> Drawn {
        let font = FontDesc::new(FontFamily::SansSerif, FONT_SIZE, FontStyle::Normal);
        let (color, pos) = (ink.rgb(), Pos::new(HPos::Right, VPos::Center));
        let style = TextStyle::from(font).color(&color).pos(pos).transform(FontTransform::Rotate270);
        self.area.draw(&Text::new(text, fine(at), style))
    }

    fn write(&self, text: &str, at: (i32, i32), anchor: Anchor, ink: Ink, bold: bool) -> Drawn {
        let h_pos = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Right => HPos::Right,
            Anchor::Middle => HPos::Center,
        };
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::SansSerif, FONT_SIZE, style);
        let color = ink.rgb();
        let style = TextStyle::from(font).color(&color).pos(Pos::new(h_pos, VPos::Center));
        self.area.draw(&Text::new(text, at, style))
    }

    /// A filled rectangle between two corners.
    pub(super) fn block(&self, from: (f64, f64), to: (f64, f64), ink: Ink) -> Drawn {
        self.area.draw(&Rectangle::new([fine(from), fine(to)], ink.rgb().filled()))
    }

    /// A line through points.
    pub(super) fn path(&self, points: &[(f64, f64)], ink: Ink, width: f64) -> Drawn {
        let points: Vec<_> = points.iter().copied().map(fine).collect();
        self.area.draw(&PathElement::new(points, stroke(ink, width)))
    }

    /// A round mark.
    pub(super) fn dot(&self, at: (f64, f64), radius: f64, ink: Ink) -> Drawn {
        self.area.draw(&Circle::new(fine(at), (radius * f64::from(FINE)) as i32, ink.rgb().filled()))
    }

    /// A round mark that is open.
    pub(super) fn ring(&self, at: (f64, f64), radius: f64, ink: Ink) -> Drawn {
        self.dot(at, radius, PAPER)?;
        self.area.draw(&Circle::new(fine(at), (radius * f64::from(FINE)) as i32, stroke(ink, 2.0)))
    }

    /// A plane for data between two corners.
    pub(super) fn plane(&self, from: (f64, f64), to: (f64, f64), x: Axis, y: Axis) -> Plane<'a> {
        let (left, top) = fine(from);
        let (right, bottom) = fine(to);
        let area = self.area.apply_coord_spec(Cartesian2d::<RangedCoordf64, RangedCoordf64>::new(
            x.range(),
            y.range(),
            (left..right, bottom..top),
        ));
        Plane { sheet: Sheet { area: self.area.clone() }, area, x, y, from, to }
    }
}

fn fine((x, y): (f64, f64)) -> (i32, i32) {
    ((x * f64::from(FINE)).round() as i32, (y * f64::from(FINE)).round() as i32)
}

fn stroke(ink: Ink, width: f64) -> ShapeStyle {
    ink.rgb().stroke_width((width * f64::from(FINE)).round() as u32)
}

/// One axis: what it spans, and whether in powers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// From `low` to `high`, evenly. A span that is none becomes one.
    pub(super) fn linear(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low { high } else { low + 1.0 };
        Self { low, high, log: false }
    }

    /// From `low` to `high` in powers; both are above zero.
    pub(super) fn log(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low.clamp(1e-12, 1e12) } else { 1.0 };
        let high = if high.is_finite() { high.min(1e15).max(low * 1.001) } else { low * 10.0 };
        Self { low, high, log: true }
    }

    /// From zero to a round number at or above `most`, for at most `ticks` steps.
    pub(super) fn up_to(most: f64, ticks: u32) -> Self {
        let most = if most.is_finite() && most > 0.0 { most.min(1e15) } else { 1.0 };
        let step = ceiling(most / f64::from(ticks.max(1)));
        Self::linear(0.0, (most / step - 1e-9).ceil().max(1.0) * step)
    }

    /// Where a value lies; what is beyond an end lies on it.
    fn place(self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        if self.log { value.log10() } else { value }
    }

    fn range(self) -> std::ops::Range<f64> {
        self.place(self.low)..self.place(self.high)
    }

    /// Round values on the axis: about `wanted` of them, or 1, 2 and 5 of every power of ten.
    pub(super) fn ticks(self, wanted: usize) -> Vec<f64> {
        if !self.log {
            let step = ceiling((self.high - self.low) / wanted.max(1) as f64);
            let first = (self.low / step).ceil() as i64;
            let last = (self.high / step + 1e-9).floor() as i64;
            return (first..=last.min(first + 100)).map(|at| at as f64 * step).collect();
        }
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all: Vec<f64> = powers
            .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect();
        if all.len() <= wanted {
            return all;
        }
        all.into_iter().filter(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9).collect()
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
pub(super) fn ceiling(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| value <= digit * power * (1.0 + 1e-9));
    digit.unwrap_or(10.0) * power
}

/// An area with axes, on which data are drawn.
pub(super) struct Plane<'a> {
    sheet: Sheet<'a>,
    area: DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    x: Axis,
    y: Axis,
    from: (f64, f64),
    to: (f64, f64),
}

impl Plane<'_> {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.place(x), self.y.place(y))
    }

    /// Where a value is on the sheet, in pixels.
    pub(super) fn pixel(&self, at: (f64, f64)) -> (f64, f64) {
        let (x, y) = self.area.map_coordinate(&self.place(at));
        (f64::from(x) / f64::from(FINE), f64::from(y) / f64::from(FINE))
    }

    /// Horizontal lines of the grid, and what they stand for.
    pub(super) fn y_ticks(&self, ticks: &[f64], words: impl Fn(f64) -> String) -> Drawn {
        for tick in ticks {
            let (_, y) = self.pixel((self.x.low, *tick));
            self.sheet.path(&[(self.from.0, y), (self.to.0, y)], RULE, 1.0)?;
            self.sheet.label(&words(*tick), (self.from.0 - 8.0, y), Anchor::Right, MUTED)?;
        }
        Ok(())
    }

    /// Vertical lines of the grid, and what they stand for.
    pub(super) fn x_ticks(&self, ticks: &[f64], words: impl Fn(f64) -> String) -> Drawn {
        for tick in ticks {
            let (x, _) = self.pixel((*tick, self.y.low));
            self.sheet.path(&[(x, self.from.1), (x, self.to.1)], RULE, 1.0)?;
            self.sheet.label(&words(*tick), (x, self.to.1 + 12.0), Anchor::Middle, MUTED)?;
        }
        Ok(())
    }

    /// A line through data.
    pub(super) fn line(&self, points: &[(f64, f64)], ink: Ink, width: f64) -> Drawn {
        if let [point] = points {
            let (x, y) = self.pixel(*point);
            return self.sheet.dot((x, y), width, ink);
        }
        let points: Vec<_> = points.iter().map(|at| self.place(*at)).collect();
        self.area.draw(&PathElement::new(points, stroke(ink, width)))
    }

    /// A bound on the y axis, across the plane.
    pub(super) fn y_bound(&self, value: f64) -> Drawn {
        let (_, y) = self.pixel((self.x.low, value));
        self.sheet.path(&[(self.from.0, y), (self.to.0, y)], BOUND, 1.25)
    }

    /// A bound on the x axis, across the plane.
    pub(super) fn x_bound(&self, value: f64) -> Drawn {
        let (x, _) = self.pixel((value, self.y.low));
        self.sheet.path(&[(x, self.from.1), (x, self.to.1)], BOUND, 1.25)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_axis() {
        assert_eq!(Axis::linear(0.0, 1.0).ticks(4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(Axis::up_to(646.0, 3).ticks(3), [0.0, 250.0, 500.0, 750.0]);
        assert_eq!(Axis::log(50.0, 1_000.0).ticks(9), [50.0, 100.0, 200.0, 500.0, 1_000.0]);
        assert_eq!(Axis::log(1e-4, 1.0).ticks(6).len(), 5, "powers alone where 1, 2 and 5 do not fit");
    }

    #[test]
    fn strange_spans_are_still_axes() {
        for axis in [
            Axis::linear(f64::NAN, f64::NAN),
            Axis::linear(5.0, 5.0),
            Axis::log(0.0, 0.0),
            Axis::log(f64::INFINITY, f64::NAN),
            Axis::up_to(f64::INFINITY, 5),
            Axis::up_to(1e300, 5),
            Axis::up_to(-1.0, 0),
        ] {
            assert!(axis.range().start.is_finite() && axis.range().end > axis.range().start, "{axis:?}");
            assert!(axis.ticks(5).len() < 120, "{axis:?}");
            assert!(axis.place(f64::NAN).is_finite() && axis.place(f64::INFINITY).is_finite());
        }
    }

    #[test]
    fn the_name_of_a_drawing_is_escaped_and_no_label_is_markup() {
        let drawn = svg("a \"<b>\" & c", (100, 40), |sheet| {
            sheet.label("<script>x</script>", (10.0, 10.0), Anchor::Left, BOUND)
        });
        let text = drawn.into_string();
        assert!(text.contains("<title>a &quot;&lt;b&gt;&quot; &amp; c</title>"), "{text}");
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script"), "{text}");
        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
    }

    #[test]
    fn larger_is_higher_and_further_right() {
        let drawn = svg("plane", (100, 100), |sheet| {
            let plane = sheet.plane((10.0, 10.0), (90.0, 90.0), Axis::up_to(10.0, 5), Axis::log(1.0, 100.0));
            assert_eq!(plane.pixel((0.0, 1.0)), (10.0, 90.0));
            assert_eq!(plane.pixel((10.0, 100.0)), (90.0, 10.0));
            assert_eq!(plane.pixel((5.0, 10.0)), (50.0, 50.0));
            assert_eq!(plane.pixel((99.0, 0.0)), (90.0, 90.0), "what is beyond an end lies on it");
            Ok(())
        });
        assert!(drawn.into_string().contains("<svg"));
    }
}
