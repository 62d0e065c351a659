//! File: a packet as its file has it, read, validated and joined up, with every fault at once.

use super::{
    Claim, FIGURES_MAX, Figure, Formula, INPUTS_MAX, Input, NUMBER_MAX, OPERANDS_MAX, Operand, Packet,
    Stated, UNITS,
    domains::{DOMAINS_MAX, Question},
    step,
};
use crate::{
    read::{Place, Table},
    scenario::plain_name,
};

/// Longest text about a packet or a figure, in characters.
const PROSE_CHARS_MAX: usize = 300;
/// Longest unit, in characters.
const UNIT_CHARS_MAX: usize = 24;
/// Most decimals that a value is stated to.
const DECIMALS_MAX: u64 = 9;
/// A tolerance beyond this share of the value would hold nearly whatever the inputs say.
const TOLERANCE_MAX_SHARE: f64 = 0.1;
/// What a name must look like.
const NAME: &str = "1 to 64 characters of a-z, 0-9 and '_'";
/// What a sentence must look like.
const PROSE: &str = "a text of 1 to 300 characters";

/// A figure before its operands are known to be there. `None` where a fault was found, and recorded.
struct Raw {
    name: Option<String>,
    name_at: Place,
    formula: Option<Formula>,
    of: Option<Vec<String>>,
    of_at: Place,
    rest: Option<(String, Claim, Option<Stated>)>,
    claim_at: Place,
}

pub(super) fn packet(table: &mut Table<'_>, digest: u64) -> Option<Packet> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let about = table.text("about", PROSE, prose);
    let source = table.text("source", PROSE, prose);
    let inputs = table.numbers("inputs", 1..=INPUTS_MAX, input);
    let mut raws = Vec::new();
    let figures = table.sections("figures", 1..=FIGURES_MAX, |table| {
        raws.push(raw(table));
        Some(())
    });
    let domains = table.section_opt("domains", |table| question(table, inputs.as_deref()));
    let (inputs, domains) = (inputs?, domains?);
    figures?;
    let joined = join(table, &inputs, raws)?;
    let inputs = inputs.into_iter().map(|(name, value)| Input { name, value }).collect();
    let (figures, order) = joined;
    let packet = Packet {
        name: name?,
        version: version?,
        digest,
        about: about?,
        source: source?,
        inputs,
        figures,
        order,
        domains,
    };
    Some(packet)
}

/// What the number of an input must be within, or what is wrong with its name.
fn input(name: &str) -> Result<std::ops::RangeInclusive<f64>, String> {
    if own_name(name).is_none() {
        return Err(format!("the name of an input has {NAME}"));
    }
    let unit =
        |unit: &&str| name == *unit || name.strip_suffix(*unit).is_some_and(|rest| rest.ends_with('_'));
    match UNITS.iter().find(|candidate| unit(candidate)) {
        Some(&"ratio") => Ok(0.0..=1.0),
        Some(_) => Ok(0.0..=NUMBER_MAX),
        None => {
            Err(format!("the name of an input ends in its unit or in what it counts: {}", UNITS.join(", ")))
        }
    }
}

fn raw(table: &mut Table<'_>) -> Raw {
    let names = Formula::ALL.map(Formula::as_str).join(", ");
    let name = table.text("name", NAME, own_name);
    let unit = table.text("unit", "a text of 1 to 24 characters", |text| sized(text, UNIT_CHARS_MAX));
    let formula = table.text("formula", &format!("one of {names}"), Formula::parse);
    let of = table.texts_opt("of", OPERANDS_MAX, NAME, own_name).and_then(|of| {
        if of.is_none() {
            table.fault("of", "missing");
        }
        of
    });
    let rest = match formula {
        Some(formula) if formula.compares() => Some((Claim::Holds, None)),
        Some(_) => claim(table),
        None => {
            // Without the formula it cannot be told whether there must be a value; what is there is looked at.
            let _ = (table.number_opt("value", 0.0..=NUMBER_MAX), stated(table));
            let _ = (table.integer_opt("decimals", 0..=DECIMALS_MAX), tolerance(table), rounding(table));
            None
        }
    };
    let rest = unit.zip(rest).map(|(unit, (claim, stated))| (unit, claim, stated));
    let of = of.filter(|of| operands_are_sound(table, formula, of));
    let (name_at, of_at, claim_at) = (table.place("name"), table.place("of"), table.place("value"));
    Raw { name, name_at, formula, of, of_at, rest, claim_at }
}

fn operands_are_sound(table: &Table<'_>, formula: Option<Formula>, of: &[String]) -> bool {
    let mut sound = true;
    for (at, name) in of.iter().enumerate().filter(|(at, name)| of[..*at].contains(name)) {
        table.fault("of", format!("operand {}: {name} is taken already", at + 1));
        sound = false;
    }
    let Some(formula) = formula else { return sound };
    let count = formula.operands();
    if !count.contains(&of.len()) {
        let (least, most) = (count.start(), count.end());
        let expected = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        table.fault("of", format!("{} takes {expected} operands, found {}", formula.as_str(), of.len()));
        sound = false;
    }
    if formula == Formula::AnyOf {
        for name in of.iter().filter(|name| !name.ends_with("_ratio")) {
            table.fault("of", format!("any_of takes inputs that end in _ratio; {name} does not"));
            sound = false;
        }
    }
    sound
}

/// What is claimed of a figure that comes to a value.
fn claim(table: &mut Table<'_>) -> Option<(Claim, Option<Stated>)> {
    let value = table.number("value", 0.0..=NUMBER_MAX);
    let decimals = table.integer_opt("decimals", 0..=DECIMALS_MAX);
    let (tolerance, down, stated) = (tolerance(table), rounding(table), stated(table));
    let (value, decimals, tolerance, down, stated) = (value?, decimals?, tolerance?, down?, stated?);
    let claim = match (decimals, tolerance) {
        (Some(decimals), None) => {
            let decimals = u32::try_from(decimals).ok()?;
            let steps = value / step(decimals);
            if (steps - steps.round()).abs() > 1e-6 {
                table.fault("value", format!("has more than the {decimals} decimals that it is stated to"));
                return None;
            }
            Claim::Rounded { value, decimals, down: down.unwrap_or(false) }
        }
        (None, Some(tolerance)) => {
            if tolerance > value * TOLERANCE_MAX_SHARE {
                table.fault("tolerance", "is more than a tenth of the value, and would hold nearly whatever");
                return None;
            }
            if down.is_some() {
                table.fault("round", "goes with decimals, not with a tolerance");
                return None;
            }
            Claim::Within { value, tolerance }
        }
        _ => {
            table.fault("value", "needs either the decimals that it is stated to or a tolerance");
            return None;
        }
    };
    let (least, most) = claim.span()?;
    if stated.as_ref().is_some_and(|stated| (least..=most).contains(&stated.value)) {
        table.fault("stated", "is what the figure comes to, so there is nothing to explain");
        return None;
    }
    Some((claim, stated))
}

fn tolerance(table: &mut Table<'_>) -> Option<Option<f64>> {
    table.number_opt("tolerance", 0.0..=NUMBER_MAX)
}

/// Whether a value is cut off; `None` where the file does not say.
fn rounding(table: &mut Table<'_>) -> Option<Option<bool>> {
    table.text_opt("round", "\"nearest\" or \"down\"", |text| match text {
        "nearest" => Some(false),
        "down" => Some(true),
        _ => None,
    })
}

fn stated(table: &mut Table<'_>) -> Option<Option<Stated>> {
    let (value, why) = (table.number_opt("stated", 0.0..=NUMBER_MAX), table.text_opt("why", PROSE, prose));
    match (value?, why?) {
        (Some(value), Some(why)) => Some(Some(Stated { value, why })),
        (None, None) => Some(None),
        (Some(_), None) => {
            table.fault("why", "missing: what is stated and does not follow needs a reason");
            None
        }
        (None, Some(_)) => {
            table.fault("stated", "missing: a reason needs what it is for");
            None
        }
    }
}

fn question(table: &mut Table<'_>, inputs: Option<&[(String, f64)]>) -> Option<Question> {
    let up_to = table.integer32("up_to", 1..=DOMAINS_MAX);
    let mut named = |key: &'static str, unit: &str| {
        let name = table.text(key, NAME, own_name)?;
        // Bad inputs are reported where they are.
        let inputs = inputs?;
        let Some(at) = inputs.iter().position(|(input, _)| *input == name) else {
            table.fault(key, format!("no input is called {name}"));
            return None;
        };
        if !name.ends_with(unit) {
            table.fault(key, format!("must be an input that ends in {unit}"));
            return None;
        }
        if inputs[at].1 <= 0.0 {
            table.fault(key, format!("{name} must be above 0"));
            return None;
        }
        Some(at)
    };
    let (rate, whole, part) = (named("rate", "_per_s"), named("whole", ""), named("part", ""));
    let median = named("median", "_ms");
    let question = Question { up_to: up_to?, rate: rate?, whole: whole?, part: part?, median: median? };
    if inputs.is_some_and(|inputs| inputs[question.part].1 >= inputs[question.whole].1) {
        table.fault("part", "must be below the whole: it is held for a part of the time");
        return None;
    }
    Some(question)
}

/// Finds every operand, puts the figures in an order in which each follows those that it takes, and looks at what they come to.
fn join(table: &Table<'_>, inputs: &[(String, f64)], raws: Vec<Raw>) -> Option<(Vec<Figure>, Vec<usize>)> {
    let mut sound = true;
    let mut fault = |place: &Place, message: String| {
        table.fault_at(place, message);
        sound = false;
    };
    for (at, raw) in raws.iter().enumerate() {
        let Some(name) = &raw.name else { continue };
        if raws[..at].iter().any(|earlier| earlier.name.as_ref() == Some(name)) {
            fault(&raw.name_at, format!("the name {name} is taken by another figure"));
        }
        if inputs.iter().any(|(input, _)| input == name) {
            fault(&raw.name_at, format!("the name {name} is taken by an input"));
        }
    }
    let whole = raws.iter().all(|raw| raw.name.is_some() && raw.of.is_some());
    let mut used = vec![false; inputs.len()];
    let mut operands: Vec<Vec<Operand>> = Vec::new();
    for raw in &raws {
        let mut found = Vec::new();
        for name in raw.of.iter().flatten() {
            let figure = raws.iter().position(|other| other.name.as_ref() == Some(name));
            match (inputs.iter().position(|(input, _)| input == name), figure) {
                (Some(input), _) => {
                    used[input] = true;
                    found.push(Operand::Input(input));
                }
                (None, Some(figure)) if raws[figure].formula.is_some_and(Formula::compares) => {
                    fault(&raw.of_at, format!("{name} is a comparison and has no value to take"));
                }
                (None, Some(figure)) => found.push(Operand::Figure(figure)),
                // The figure may be one whose name could not be read.
                (None, None) if whole => {
                    fault(&raw.of_at, format!("no input and no figure is called {name}"));
                }
                (None, None) => {}
            }
        }
        operands.push(found);
    }
    for ((name, _), _) in inputs.iter().zip(&used).filter(|(_, used)| whole && !**used) {
        table.fault_in(&["inputs", name], "takes part in no figure, so that it could be changed unnoticed");
        sound = false;
    }
    let order = order(table, &raws, &operands)?;
    let figures = raws.iter().zip(&operands).map(|(raw, of)| {
        let (unit, claim, stated) = raw.rest.clone()?;
        Some(Figure { name: raw.name.clone()?, unit, formula: raw.formula?, of: of.clone(), claim, stated })
    });
    let figures = figures.collect::<Option<Vec<_>>>().filter(|_| sound && whole)?;
    compute(table, inputs, &raws, &figures, &order).then_some((figures, order))
}

/// The figures, each after those that it takes. `None`, with the fault recorded, when some take each other.
fn order(table: &Table<'_>, raws: &[Raw], operands: &[Vec<Operand>]) -> Option<Vec<usize>> {
    let mut order = Vec::new();
    let ready = |at: usize, order: &[usize]| {
        operands[at].iter().all(|operand| match operand {
            Operand::Input(_) => true,
            Operand::Figure(below) => order.contains(below),
        })
    };
    // Each round places at least one figure or ends it.
    for _ in 0..raws.len() {
        let next: Vec<usize> =
            (0..raws.len()).filter(|at| !order.contains(at) && ready(*at, &order)).collect();
        order.extend(next);
    }
    // What is left takes itself, by whatever way, or takes one that does.
    for (at, raw) in raws.iter().enumerate().filter(|(at, _)| !order.contains(at)) {
        let left: Vec<&str> = operands[at]
            .iter()
            .filter_map(|operand| match operand {
                Operand::Figure(below) if !order.contains(below) => raws[*below].name.as_deref(),
                _ => None,
            })
            .collect();
        table.fault_at(&raw.of_at, format!("goes round in a circle: it takes {}", left.join(", ")));
    }
    (order.len() == raws.len()).then_some(order)
}

/// Whether every figure comes to a number, and is no repetition of another.
fn compute(
    table: &Table<'_>,
    inputs: &[(String, f64)],
    raws: &[Raw],
    figures: &[Figure],
    order: &[usize],
) -> bool {
    let mut sound = true;
    let declared: Vec<f64> = inputs.iter().map(|(_, value)| *value).collect();
    let mut values = vec![0.0; figures.len()];
    for &at in order {
        let (figure, raw) = (&figures[at], &raws[at]);
        let of = figure.operands(&declared, &values);
        values[at] = figure.formula.apply(&of);
        if !values[at].is_finite() {
            table.fault_at(&raw.of_at, "does not come to a number: it divides by 0");
            sound = false;
        }
        for (position, value) in of.iter().enumerate() {
            if figure.formula.repeats(position, *value) {
                let operand = &raw.of.iter().flatten().nth(position).map_or("", String::as_str);
                let text = format!("{operand} is {value}, which changes nothing: the figure repeats another");
                table.fault_at(&raw.claim_at, text);
                sound = false;
            }
        }
    }
    sound
}

fn own_name(text: &str) -> Option<String> {
    let own = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    ((1..=64).contains(&text.len()) && text.bytes().all(own)).then(|| text.to_owned())
}

fn prose(text: &str) -> Option<String> {
    sized(text, PROSE_CHARS_MAX)
}

fn sized(text: &str, chars_max: usize) -> Option<String> {
    let sized = !text.trim().is_empty() && text.chars().count() <= chars_max;
    (sized && !text.contains(char::is_control)).then(|| text.to_owned())
}
