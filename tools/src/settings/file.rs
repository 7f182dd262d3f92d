//! The file: TOML, one table `[record]`, keys named like the flags.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{COMMAND, FILE_NAME, FILE_VARIABLE, Given, SETTINGS, Source};

/// What the file says, if there is one.
pub(super) fn read() -> Result<Vec<Given>> {
    let Some(path) = find()? else {
        return Ok(Vec::new());
    };
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: the settings cannot be read", path.display()))?;
    parse(&path, &text)
}

/// The file that was named, or the first one that exists: in this folder, of this user.
fn find() -> Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os(FILE_VARIABLE) {
        // Empty: none.
        return Ok((!named.is_empty()).then(|| PathBuf::from(named)));
    }
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let places = [
        Some(PathBuf::from(FILE_NAME)),
        folder.map(|f| f.join("stackbeat").join(FILE_NAME)),
    ];
    Ok(places.into_iter().flatten().find(|p| p.is_file()))
}

/// Reads a file's content; everything wrong in it is said with line and column.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Given>> {
    let at = |offset: usize| place(text, offset);
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let offset = error.span().map_or(0, |span| span.start);
            bail!("{}:{}: {}", path.display(), at(offset), error.message());
        }
    };
    let mut given = Vec::new();
    for (key, value) in table.get_ref() {
        let here = at(key.span().start);
        match (key.get_ref().as_ref(), value.get_ref()) {
            (COMMAND, DeValue::Table(settings)) => {
                for (key, value) in settings {
                    given.push(setting(path, &at(key.span().start), key.get_ref(), value)?);
                }
            }
            (COMMAND, _) => bail!(
                "{}:{here}: `{COMMAND}` is a table: write [{COMMAND}]",
                path.display()
            ),
            // Of `stackbeat gate`.
            ("gate" | "budget", _) => {}
            (name, _) if SETTINGS.contains(&name) => bail!(
                "{}:{here}: `{name}` belongs into the table [{COMMAND}]",
                path.display()
            ),
            (name, _) => bail!(
                "{}:{here}: no such table `{name}`; known is [{COMMAND}]",
                path.display()
            ),
        }
    }
    Ok(given)
}

fn setting(path: &Path, at: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Given> {
    let Some(name) = SETTINGS.into_iter().find(|s| *s == key) else {
        bail!(
            "{}:{at}: no such setting `{key}`; known are {}",
            path.display(),
            SETTINGS.join(", ")
        );
    };
    let Some(value) = as_text(value.get_ref()) else {
        bail!(
            "{}:{at}: `{key}` is a text, a number, true or false, or a list of texts",
            path.display()
        );
    };
    Ok(Given {
        name,
        value,
        source: Source::File {
            path: path.to_path_buf(),
            at: at.to_owned(),
        },
    })
}

/// A value as it would be typed.
fn as_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| as_text(item.get_ref()));
            Some(texts.collect::<Option<Vec<_>>>()?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// `line:column` of a byte, both from 1.
pub(crate) fn place(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_flags_and_values_are_as_typed() {
        let text = "# mine\n[record]\ninterval = \"250us\"\ndepth = 64\nno-children = true\n\
                    probes = [\"lock\", \"wait\"]\n";
        let given = parse(Path::new("s.toml"), text).expect("is good");
        let pairs: Vec<_> = given.iter().map(|g| (g.name, g.value.as_str())).collect();
        for pair in [
            ("interval", "250us"),
            ("depth", "64"),
            ("no-children", "true"),
            ("probes", "lock,wait"),
        ] {
            assert!(pairs.contains(&pair), "{pairs:?}");
        }
        let depth = given.iter().find(|g| g.name == "depth").expect("is there");
        assert_eq!(depth.source.to_string(), "s.toml:4:1");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_is_known() {
        for (text, parts) in [
            (
                "[record]\nintervall = \"1ms\"",
                vec!["s.toml:2:1:", "`intervall`", "known are interval,"],
            ),
            (
                "[record]\n  depth = 1979-05-27",
                vec!["s.toml:2:3:", "`depth` is a text"],
            ),
            (
                "interval = \"1ms\"",
                vec!["s.toml:1:1:", "belongs into the table [record]"],
            ),
            (
                "[report]\ntop = 3",
                vec!["s.toml:1:2:", "no such table `report`"],
            ),
            ("record = 3", vec!["s.toml:1:1:", "is a table"]),
            ("[record]\ninterval = 1ms", vec!["s.toml:2:"]),
            (
                "[record]\nagent = \"/tmp/x.so\"",
                vec!["no such setting `agent`"],
            ),
            ("[record", vec!["s.toml:1:"]),
        ] {
            let error = parse(Path::new("s.toml"), text)
                .expect_err(text)
                .to_string();
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}
