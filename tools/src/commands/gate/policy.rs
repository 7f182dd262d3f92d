//! The policy file: thresholds, what to ignore, and budgets. TOML, tables `[gate]` and `[[budget]]`, beside
//! `[record]` in the same file if one likes. Everything wrong in it is said with line and column.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use stackbeat_gate::rules::{Budget, Per, Rules, Scoped};
use stackbeat_model::metric::{Metric, Unit};

use crate::settings::place;
use crate::units::{parse_duration_ns, parse_size_bytes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const GATE_KEYS: [&str; 11] = [
    "alpha",
    "confidence",
    "min-effect",
    "min-exact",
    "floor",
    "floor-share",
    "required",
    "fail-on-counts",
    "ignore-metrics",
    "ignore",
    "required-scopes",
];
const BUDGET_KEYS: [&str; 6] = ["function", "thread", "scope", "per", "metric", "max"];

/// The rules that a policy, if there is one, makes of the defaults.
pub(super) fn read(path: Option<&Path>, rules: Rules) -> Result<Rules> {
    let Some(path) = path else { return Ok(rules) };
    let text = fs::read_to_string(path)
        .with_context(|| format!("{}: the policy cannot be read", path.display()))?;
    parse(path, &text, rules)
}

type Value<'a> = Spanned<DeValue<'a>>;

fn parse(path: &Path, text: &str, mut rules: Rules) -> Result<Rules> {
    let fail =
        |offset: usize, what: String| anyhow!("{}:{}: {what}", path.display(), place(text, offset));
    let table = DeTable::parse(text).map_err(|error| {
        fail(
            error.span().map_or(0, |s| s.start),
            error.message().to_string(),
        )
    })?;
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        match (key.get_ref().as_ref(), value.get_ref()) {
            // Of `stackbeat record`.
            ("record", _) => {}
            ("gate", DeValue::Table(settings)) => {
                for (key, value) in settings {
                    let name = key.get_ref().as_ref();
                    set(&mut rules, name, value)
                        .map_err(|e| fail(key.span().start, format!("{e:#}")))?;
                }
            }
            ("budget", DeValue::Array(list)) => {
                for item in list {
                    let budget = budget(item).map_err(|(at, e)| fail(at, format!("{e:#}")))?;
                    // A budget of what is not measured holds nothing.
                    let scope = budget.scope.as_ref().map(|s| s.name.clone());
                    rules.required_scopes.extend(scope);
                    rules.budgets.push(budget);
                }
            }
            ("gate", _) => return Err(fail(at, "`gate` is a table: write [gate]".into())),
            ("budget", _) => return Err(fail(at, "`budget` is a list: write [[budget]]".into())),
            (name, _) => {
                let what =
                    format!("no such table `{name}`; known are [gate], [[budget]], [record]");
                return Err(fail(at, what));
            }
        }
    }
    Ok(rules)
}

fn set(rules: &mut Rules, name: &str, value: &Value<'_>) -> Result<()> {
    let share = || share(value).with_context(|| format!("`{name}`"));
    match name {
        "alpha" => rules.alpha = share()?,
        "confidence" => rules.confidence = share()?,
        "min-effect" => rules.min_effect = share()?,
        "min-exact" => rules.min_exact = share()?,
        "floor-share" => rules.floor_share = share()?,
        "floor" => {
            let text = text(value).with_context(|| format!("`{name}`"))?;
            rules.floor_ns = parse_duration_ns(text).map_err(|e| anyhow!("`{name}`: {e}"))? as f64;
        }
        "required" => rules.required = metrics(value)?,
        "fail-on-counts" => match value.get_ref() {
            DeValue::Boolean(is_on) => rules.fail_on_counts |= is_on,
            _ => bail!("`{name}` is true or false"),
        },
        "ignore-metrics" => rules.ignored_metrics = metrics(value)?,
        "required-scopes" => {
            let scopes = texts(value)?.into_iter().map(String::from);
            // Beside those of budgets, which may stand before.
            rules.required_scopes.extend(scopes);
        }
        "ignore" => rules.ignored_functions = texts(value)?.into_iter().map(String::from).collect(),
        _ => bail!(
            "no such setting `{name}`; known are {}",
            GATE_KEYS.join(", ")
        ),
    }
    if !(rules.alpha > 0.0 && rules.alpha < 0.5 && rules.confidence > 0.5 && rules.confidence < 1.0)
    {
        bail!("`{name}`: alpha is between 0 and 0.5, confidence between 0.5 and 1");
    }
    Ok(())
}

/// A budget, or what is wrong with it and where in the file: at the key that is wrong, or at the budget when
/// something is missing.
fn budget(item: &Value<'_>) -> Result<Budget, (usize, anyhow::Error)> {
    let whole = item.span().start;
    let DeValue::Table(settings) = item.get_ref() else {
        let error = anyhow!("a budget is a table: write [[budget]]");
        return Err((whole, error));
    };
    for (key, _) in settings {
        let name = key.get_ref().as_ref();
        if !BUDGET_KEYS.contains(&name) {
            let known = BUDGET_KEYS.join(", ");
            let error = anyhow!("no such key `{name}` in a budget; known are {known}");
            return Err((key.span().start, error));
        }
    }
    // Messages about a key name it first.
    budget_of(settings).map_err(|error| {
        let text = format!("{error:#}");
        let named = settings.iter().find(|(key, _)| {
            let name = key.get_ref().as_ref();
            text.starts_with(&format!("`{name}`"))
        });
        (named.map_or(whole, |(key, _)| key.span().start), error)
    })
}

fn budget_of(settings: &DeTable<'_>) -> Result<Budget> {
    let get = |name: &str| {
        let found = settings
            .iter()
            .find(|(key, _)| key.get_ref().as_ref() == name);
        found.map(|(_, value)| value)
    };
    let metric = metric(get("metric").context("a budget needs a `metric`")?).context("`metric`")?;
    let max = get("max").context("a budget needs a `max`")?;
    let max = match (max.get_ref(), metric.unit()) {
        (DeValue::String(text), Unit::Nanoseconds) => {
            parse_duration_ns(text).map_err(|e| anyhow!("`max`: {e}"))? as f64
        }
        (DeValue::String(text), Unit::Bytes) => {
            parse_size_bytes(text).map_err(|e| anyhow!("`max`: {e}"))? as f64
        }
        (_, Unit::Nanoseconds) => bail!("`max` of a time is a text with its unit: \"5ms\""),
        _ => number(max).context("`max`")?,
    };
    let name = |key: &str| -> Result<Option<String>> {
        let text = get(key).map(text).transpose();
        let text = text.with_context(|| format!("`{key}`"))?;
        Ok(text.map(String::from))
    };
    let (function, thread, scope) = (name("function")?, name("thread")?, name("scope")?);
    let per = match name("per")? {
        None => Per::default(),
        Some(_) if scope.is_none() => bail!("`per` is for a `scope`"),
        Some(text) => {
            let found = Per::ALL.into_iter().find(|per| per.name() == text);
            found.with_context(|| {
                let known = Per::ALL.map(Per::name);
                format!(
                    "`per`: no such thing as `{text}`; known are {}",
                    known.join(", ")
                )
            })?
        }
    };
    if scope.is_some() && (function.is_some() || thread.is_some()) {
        bail!("a budget of a `scope` has no `function` and no `thread`");
    }
    if scope.is_some() && matches!(metric, Metric::Threads | Metric::Calls) {
        bail!("{} are not known of a `scope`", metric.title());
    }
    if per == Per::Longest && metric != Metric::Wall {
        bail!("`per = \"longest\"` is for `wall`: of single scopes only the time is known");
    }
    let narrower = [
        ("function", &function),
        ("thread", &thread),
        ("scope", &scope),
    ];
    let narrower = narrower.into_iter().find(|(_, name)| name.is_some());
    if let Some((key, _)) = narrower
        && metric.is_transfer()
    {
        bail!(
            "`{key}`: what the kernel counts is known of the whole run only; leave it out, or use `bytes:read`, \
             `bytes:written`, `calls:read` or `calls:write`"
        );
    }
    Ok(Budget {
        function,
        thread,
        scope: scope.map(|name| Scoped { name, per }),
        metric,
        max,
    })
}

/// `0.03` or `"3%"`.
fn share(value: &Value<'_>) -> Result<f64> {
    let share = match value.get_ref() {
        DeValue::String(text) => {
            let number = text
                .trim()
                .strip_suffix('%')
                .context("write 0.03 or \"3%\"")?;
            number
                .trim()
                .parse::<f64>()
                .context("write 0.03 or \"3%\"")?
                / 100.0
        }
        _ => number(value)?,
    };
    if !(0.0..=10.0).contains(&share) {
        bail!("{share} is no share: write 0.03 or \"3%\"");
    }
    Ok(share)
}

fn number(value: &Value<'_>) -> Result<f64> {
    match value.get_ref() {
        DeValue::Integer(number) => Ok(number.to_string().parse()?),
        DeValue::Float(number) => Ok(number.to_string().parse()?),
        _ => bail!("is a number"),
    }
}

fn text<'a>(value: &'a Value<'_>) -> Result<&'a str> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => bail!("is a text"),
    }
}

fn texts<'a>(value: &'a Value<'_>) -> Result<Vec<&'a str>> {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().map(text).collect(),
        _ => bail!("is a list of texts: [\"a\", \"b\"]"),
    }
}

fn metric(value: &Value<'_>) -> Result<Metric> {
    named(text(value)?)
}

fn metrics(value: &Value<'_>) -> Result<Vec<Metric>> {
    texts(value)?.into_iter().map(named).collect()
}

fn named(name: &str) -> Result<Metric> {
    Metric::from_name(name).with_context(|| {
        let known = Metric::ALL.map(Metric::name);
        format!("no such metric `{name}`; known are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<Rules> {
        parse(Path::new("p.toml"), text, Rules::default())
    }

    #[test]
    fn a_policy_changes_the_rules() {
        let rules = policy(
            "[record]\ninterval = \"1ms\"\n[gate]\nalpha = 0.02\nmin-effect = \"5%\"\nfloor = \"2ms\"\n\
             required = [\"cpu\"]\nignore = [\"log_*\"]\n[[budget]]\nfunction = \"parse\"\nmetric = \"wall\"\n\
             max = \"5ms\"\n[[budget]]\nmetric = \"allocations\"\nmax = 0\n",
        )
        .expect("is good");
        assert_eq!(
            (rules.alpha, rules.min_effect, rules.floor_ns),
            (0.02, 0.05, 2e6)
        );
        assert_eq!(rules.required, [Metric::Cpu]);
        assert_eq!(rules.ignored_functions, ["log_*"]);
        assert_eq!((rules.budgets[0].max, rules.budgets[1].max), (5e6, 0.0));
        let rules = policy(
            "[gate]\nrequired-scopes = [\"store\"]\n[[budget]]\nscope = \"parse\"\nper = \"call\"\n\
             metric = \"wall\"\nmax = \"5ms\"\n",
        )
        .expect("is good");
        // A scope with a budget is required too.
        assert_eq!(rules.required_scopes, ["parse", "store"]);
        let scope = rules.budgets[0].scope.as_ref().expect("a scope");
        assert_eq!((scope.name.as_str(), scope.per), ("parse", Per::Call));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_is_known() {
        for (text, parts) in [
            (
                "[gate]\nalpa = 1",
                vec!["p.toml:2:1:", "`alpa`", "known are alpha,"],
            ),
            ("[gate]\nmin-effect = \"3\"", vec!["p.toml:2:1:", "\"3%\""]),
            (
                "[gate]\nrequired = [\"speed\"]",
                vec!["no such metric `speed`", "wall, cpu"],
            ),
            ("[gate]\nalpha = 0.9", vec!["between 0 and 0.5"]),
            (
                "[[budget]]\nthread = \"t\"\nmetric = \"read-bytes\"\nmax = 0",
                vec!["p.toml:2:1:", "of the whole run only"],
            ),
            (
                "[[budget]]\nmetric = \"cpu\"\nmax = 5",
                vec!["p.toml:3:1:", "\"5ms\""],
            ),
            (
                "[[budget]]\nmetric = \"cpu\"",
                vec!["p.toml:1:1:", "needs a `max`"],
            ),
            (
                "[[budget]]\nmax = 5\nmetric = \"speed\"",
                vec!["p.toml:3:1:", "no such metric `speed`", "wall, cpu"],
            ),
            (
                "[[budget]]\nfn = 1",
                vec!["p.toml:2:1:", "no such key `fn`", "function, thread"],
            ),
            (
                "[[budget]]\nscope = \"parse\"\nper = \"longest\"\nmetric = \"cpu\"\nmax = \"5ms\"",
                vec!["p.toml:1:1:", "only the time is known"],
            ),
            (
                "[[budget]]\nscope = \"parse\"\nmetric = \"threads\"\nmax = 1",
                vec!["p.toml:1:1:", "threads are not known of a `scope`"],
            ),
            (
                "[[budget]]\nscope = \"parse\"\nthread = \"main\"\nmetric = \"cpu\"\nmax = \"5ms\"",
                vec!["p.toml:1:1:", "no `thread`"],
            ),
            (
                "[[budget]]\nscope = \"parse\"\nper = \"day\"\nmetric = \"wall\"\nmax = \"5ms\"",
                vec![
                    "p.toml:3:1:",
                    "no such thing as `day`",
                    "run, call, longest",
                ],
            ),
            (
                "[[budget]]\nper = \"call\"\nmetric = \"wall\"\nmax = \"5ms\"",
                vec!["`per` is for a `scope`"],
            ),
            ("[gates]", vec!["p.toml:1:2:", "known are [gate]"]),
            ("[gate", vec!["p.toml:1:"]),
        ] {
            let error = format!("{:#}", policy(text).expect_err(text));
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}
