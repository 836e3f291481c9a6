//! Cases of the Rust client for projections and for operations of the server.

use kurrentdb::operations::OperationalOptions;
use kurrentdb::{
    Client, CreateProjectionOptions, DeleteProjectionOptions, Error as ClientError,
    GenericProjectionOptions, GetStateProjectionOptions, ProjectionClient, UpdateProjectionOptions,
};

use crate::basic_cases::{Case, Failure, Outcome, expect, refused};

/// Returns all cases; a case runs only when it is awaited.
pub fn all<'a>(client: &'a Client, connection: &'a str) -> Vec<Case<'a>> {
    vec![
        ("list the built-in projections", Box::pin(list(client))),
        ("stop, start and reset a projection", Box::pin(stop_start_reset(client))),
        ("get the state of a projection", Box::pin(state(client))),
        ("report a missing projection", Box::pin(find_none(client))),
        ("reject projection programs", Box::pin(not_run(client))),
        ("call operations of a cluster", Box::pin(operations(connection))),
    ]
}

fn projections(client: &Client) -> ProjectionClient {
    client.clone().into()
}

fn generic() -> GenericProjectionOptions {
    GenericProjectionOptions::default()
}

async fn status(client: &ProjectionClient, name: &str) -> Result<(String, String, f32), Failure> {
    let status = client.get_status(name, &generic()).await?.ok_or("no status")?;
    expect(&*status.name, name)?;
    Ok((status.status, status.position, status.progress))
}

async fn list(client: &Client) -> Outcome {
    let projections = projections(client);
    let options = generic();
    let mut listed = projections.list(&options).await?;
    let mut running = Vec::new();
    let mut count = 0;
    while let Some(status) = futures_next(&mut listed).await? {
        count += 1;
        if status.status == "Running" {
            running.push(status.name);
        }
    }
    expect(count, 5)?;
    running.sort();
    expect(running, ["$by_category", "$by_event_type", "$streams"].map(String::from).to_vec())
}

/// Returns the next item of a stream of results, if there is one.
async fn futures_next<T>(
    stream: &mut (impl futures::Stream<Item = kurrentdb::Result<T>> + Unpin),
) -> Result<Option<T>, Failure> {
    Ok(futures::TryStreamExt::try_next(stream).await?)
}

async fn stop_start_reset(client: &Client) -> Outcome {
    let projections = projections(client);
    let name = "$by_category";
    projections.disable(name, &generic()).await?;
    expect(&*status(&projections, name).await?.0, "Stopped")?;
    projections.reset(name, &generic()).await?;
    expect(&*status(&projections, name).await?.1, "C:0/P:0")?;
    projections.enable(name, &generic()).await?;
    let (running, _, progress) = status(&projections, name).await?;
    expect((&*running, progress), ("Running", 100.0))?;
    projections.abort(name, &generic()).await?;
    expect(&*status(&projections, name).await?.0, "Stopped")?;
    projections.enable(name, &generic()).await?;
    projections.restart_subsystem(&generic()).await?;
    Ok(())
}

async fn state(client: &Client) -> Outcome {
    let options = GetStateProjectionOptions::default();
    let state: Result<serde_json::Value, _> =
        projections(client).get_state("$by_category", &options).await?;
    expect(state?, serde_json::json!({}))
}

async fn find_none(client: &Client) -> Outcome {
    let projections = projections(client);
    let query = || "fromAll()".to_string();
    let update = UpdateProjectionOptions::default();
    let errors = [
        refused(projections.get_status("mine", &generic()).await)?,
        refused(projections.enable("mine", &generic()).await)?,
        refused(projections.disable("mine", &generic()).await)?,
        refused(projections.reset("mine", &generic()).await)?,
        refused(projections.update("mine", query(), &update).await)?,
        refused(projections.delete("mine", &DeleteProjectionOptions::default()).await)?,
    ];
    for error in errors {
        match error {
            ClientError::ResourceNotFound => {}
            error => return Err(error.into()),
        }
    }
    Ok(())
}

async fn not_run(client: &Client) -> Outcome {
    let projections = projections(client);
    let options = CreateProjectionOptions::default();
    let create = |name| projections.create(name, "fromAll()".to_string(), &options);
    match refused(create("mine").await)? {
        ClientError::UnsupportedFeature => {}
        error => return Err(error.into()),
    }
    match refused(create("$by_category").await)? {
        ClientError::ResourceAlreadyExists => Ok(()),
        error => Err(error.into()),
    }
}

async fn operations(connection: &str) -> Outcome {
    let client = kurrentdb::operations::Client::new(connection.parse()?)?;
    let options = OperationalOptions::default();
    client.merge_indexes(&options).await?;
    client.set_node_priority(3, &options).await?;
    client.resign_node(&options).await?;
    match refused(client.stop_scavenge("none", &options).await)? {
        ClientError::ResourceNotFound => Ok(()),
        error => Err(error.into()),
    }
}
