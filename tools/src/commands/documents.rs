//! The command line's definition as completions and as a manual page.

/// Prints the completions for one shell.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(
        shell,
        &mut crate::settings::definition(),
        "stackbeat",
        &mut text,
    );
    crate::terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// Prints one manual page with all commands.
pub(crate) fn print_man_page() -> anyhow::Result<u8> {
    let mut text = Vec::new();
    let mut command = crate::settings::definition();
    command.build();
    let page = clap_mangen::Man::new(command.clone());
    page.render(&mut text)?;
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        if sub.get_name() == "help" {
            continue;
        }
        let title = format!(".SH \"STACKBEAT {}\"\n", sub.get_name().to_uppercase());
        text.extend_from_slice(title.as_bytes());
        let page = clap_mangen::Man::new(sub.clone());
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        page.render_extra_section(&mut text)?;
    }
    crate::terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
