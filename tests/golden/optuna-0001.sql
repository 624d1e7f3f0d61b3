BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'golden');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'sweep_id','"00000000000000000000000000000000"');
INSERT INTO "study_user_attributes" VALUES(2,1,'metric','"info/score"');
INSERT INTO "study_user_attributes" VALUES(3,1,'trainable','"tests.support.quadratic:Quadratic"');
INSERT INTO "study_user_attributes" VALUES(4,1,'note','"a copy: written by sweep, read by you"');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_intermediate_values" VALUES(1,1,100,0.0,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(2,1,200,0.5,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(3,1,300,6.66666666666666740681e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(4,1,400,0.75,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(5,1,500,0.8,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(6,1,600,8.3333333333333337034e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(7,1,700,8.57142857142857206298e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(8,1,800,0.875,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(9,1,900,8.88888888888888839545e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(10,2,100,1.0,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(11,2,200,1.5,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(12,2,300,1.66666666666666674068e+00,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(13,3,100,2.0,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(14,3,200,2.5,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(15,3,300,2.66666666666666651863e+00,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(16,3,400,2.75,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(17,3,500,2.8,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(18,4,100,3.0,'FINITE');
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}');
INSERT INTO "trial_params" VALUES(2,1,'layers',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 4}}');
INSERT INTO "trial_params" VALUES(3,1,'net',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["[64,64]", "[128,128]", "null", "true"]}}');
INSERT INTO "trial_params" VALUES(4,2,'lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}');
INSERT INTO "trial_params" VALUES(5,2,'layers',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 4}}');
INSERT INTO "trial_params" VALUES(6,2,'net',2.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["[64,64]", "[128,128]", "null", "true"]}}');
INSERT INTO "trial_params" VALUES(7,3,'lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}');
INSERT INTO "trial_params" VALUES(8,3,'layers',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 4}}');
INSERT INTO "trial_params" VALUES(9,3,'net',3.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["[64,64]", "[128,128]", "null", "true"]}}');
INSERT INTO "trial_params" VALUES(10,4,'lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}');
INSERT INTO "trial_params" VALUES(11,4,'layers',4.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 4}}');
INSERT INTO "trial_params" VALUES(12,4,'net',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["[64,64]", "[128,128]", "null", "true"]}}');
INSERT INTO "trial_params" VALUES(13,5,'lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}}');
INSERT INTO "trial_params" VALUES(14,5,'layers',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 4}}');
INSERT INTO "trial_params" VALUES(15,5,'net',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["[64,64]", "[128,128]", "null", "true"]}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'settings','{"lr": 0.001, "layers": 2, "net": [64, 64]}');
INSERT INTO "trial_user_attributes" VALUES(2,1,'status','"COMPLETED"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'reason','"done"');
INSERT INTO "trial_user_attributes" VALUES(4,1,'checkpoint','"ckpt-9"');
INSERT INTO "trial_user_attributes" VALUES(5,2,'settings','{"lr": 0.001, "layers": 2, "net": null}');
INSERT INTO "trial_user_attributes" VALUES(6,2,'status','"PRUNED"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'reason','"moved to PRUNED"');
INSERT INTO "trial_user_attributes" VALUES(8,2,'checkpoint','"ckpt-3"');
INSERT INTO "trial_user_attributes" VALUES(9,3,'settings','{"lr": 0.001, "layers": 2, "net": true}');
INSERT INTO "trial_user_attributes" VALUES(10,3,'status','"FAILED"');
INSERT INTO "trial_user_attributes" VALUES(11,3,'reason','"crashed"');
INSERT INTO "trial_user_attributes" VALUES(12,3,'checkpoint','null');
INSERT INTO "trial_user_attributes" VALUES(13,4,'settings','{"lr": 0.001, "layers": 4, "net": [64, 64]}');
INSERT INTO "trial_user_attributes" VALUES(14,4,'status','"STOPPED"');
INSERT INTO "trial_user_attributes" VALUES(15,4,'reason','"goal"');
INSERT INTO "trial_user_attributes" VALUES(16,4,'checkpoint','"ckpt-1"');
INSERT INTO "trial_user_attributes" VALUES(17,5,'settings','{"lr": 0.001, "layers": 2, "net": [64, 64]}');
INSERT INTO "trial_user_attributes" VALUES(18,5,'status','"RUNNING"');
INSERT INTO "trial_user_attributes" VALUES(19,5,'reason','"slice 0"');
INSERT INTO "trial_user_attributes" VALUES(20,5,'checkpoint','null');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,8.88888888888888839545e-01,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2023-11-14 22:13:23.000000','2026-11-22 12:23:16.504351');
INSERT INTO "trials" VALUES(2,1,1,'PRUNED','2023-11-14 22:13:25.000000','2026-11-22 12:23:16.512705');
INSERT INTO "trials" VALUES(3,2,1,'FAIL','2023-11-14 22:13:29.000000','2026-11-22 12:23:16.518704');
INSERT INTO "trials" VALUES(4,3,1,'PRUNED','2023-11-14 22:13:39.000000','2026-11-22 12:23:16.520359');
INSERT INTO "trials" VALUES(5,4,1,'RUNNING','2023-11-14 22:13:48.000000',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
